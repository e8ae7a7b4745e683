package chp

import "unsafe"

// octetsOf returns the octets of s without a copy. They must only be read.
func octetsOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
