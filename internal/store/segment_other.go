//go:build !linux || portable

package store

// allocate returns size bytes for a segment.
func allocate(size int) []byte { return make([]byte, size) }

// release leaves the memory of a segment to the garbage collector.
func release([]byte) {}
