package chp

import "unsafe"

// bytesOf returns the bytes of s without a copy. They must only be read.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
