package main

import "errors"

// A message of systems that pass bytes on is the size of the key in one byte, the key and
// the value.

func appendMessage(dst []byte, key string, value []byte) []byte {
	return append(append(append(dst, byte(len(key))), key...), value...)
}

var errMessage = errors.New("not a key and a value")

// cutMessage takes a message apart.
func cutMessage(b []byte) (key, value []byte, err error) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return nil, nil, errMessage
	}
	return b[1 : 1+b[0]], b[1+b[0]:], nil
}
