package main

import (
	"strconv"
	"time"
)

// appendJSONTTL appends ,"ttl":seconds, rounded up to milliseconds, unless ttl is 0.
func appendJSONTTL(dst []byte, ttl time.Duration) []byte {
	if ttl <= 0 {
		return dst
	}
	ms := (ttl + time.Millisecond - 1) / time.Millisecond
	dst = append(dst, `,"ttl":`...)
	return strconv.AppendFloat(dst, float64(ms)/1000, 'f', -1, 64)
}
