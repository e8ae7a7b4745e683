package main

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"
)

// The JSON lines of watch, dump and load: an object a line. Octets that are
// UTF-8 stand under their name as a string; others stand under their name with
// _base64 appended, so that any key and any value survives.

// appendJSONField appends "name":"text" or "name_base64":"…".
func appendJSONField(dst []byte, name string, octets []byte) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	if !utf8.Valid(octets) {
		dst = append(dst, `_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, octets)
		return append(dst, '"')
	}
	dst = append(dst, `":`...)
	return appendJSONString(dst, octets)
}

// appendJSONNumber appends "name":n.
func appendJSONNumber(dst []byte, name string, n int64) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	dst = append(dst, `":`...)
	return strconv.AppendInt(dst, n, 10)
}

// appendJSONTTL appends ,"ttl":seconds, in milliseconds rounded up, if there is a
// limit.
func appendJSONTTL(dst []byte, ttl time.Duration) []byte {
	if ttl <= 0 {
		return dst
	}
	ms := (ttl + time.Millisecond - 1) / time.Millisecond
	dst = append(dst, `,"ttl":`...)
	return strconv.AppendFloat(dst, float64(ms)/1000, 'f', -1, 64)
}

// appendJSONString appends valid UTF-8 as a JSON string (RFC 8259 §7). It
// escapes what must be and no more, where encoding/json escapes < and & for
// HTML as well.
func appendJSONString(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7F {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			// Control characters; DEL too, which would disturb a terminal.
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}
