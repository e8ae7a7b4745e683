//go:build !linux

package chp

// allocate returns size octets for a segment.
func allocate(size int) []byte { return make([]byte, size) }
