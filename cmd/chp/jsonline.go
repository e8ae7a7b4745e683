package main

import (
	"strconv"
	"time"
)

// appendJSONSequence appends "name":"sequence". Sequences are strings in the JSON of all
// commands, because they exceed 2^53: programs that read numbers as float64 would
// round them.
func appendJSONSequence(dst []byte, name string, sequence int64) []byte {
	dst = append(append(append(dst, '"'), name...), `":"`...)
	return append(strconv.AppendInt(dst, sequence, 10), '"')
}

// appendJSONTTL appends ,"ttl":seconds, rounded up to milliseconds, unless ttl is 0.
func appendJSONTTL(dst []byte, ttl time.Duration) []byte {
	if ttl <= 0 {
		return dst
	}
	ms := (ttl + time.Millisecond - 1) / time.Millisecond
	dst = append(dst, `,"ttl":`...)
	return strconv.AppendFloat(dst, float64(ms)/1000, 'f', -1, 64)
}
