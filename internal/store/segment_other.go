//go:build !linux || portable

package store

import "unsafe"

// allocate returns size bytes for a segment.
func allocate(size int) []byte { return make([]byte, size) }

// release leaves the memory of a segment to the garbage collector.
func release([]byte) {}

// hint does nothing: only Linux is asked for huge pages.
func hint(unsafe.Pointer, int) {}
