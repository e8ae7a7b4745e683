//go:build !linux || portable

package store

import "sync/atomic"

// allocate returns size bytes for a segment.
func allocate(size int) []byte { return make([]byte, size) }

// release leaves the memory of a segment to the garbage collector.
func release([]byte) {}

// hintTable does nothing: only Linux is asked for huge pages.
func hintTable([]atomic.Uint64, int) {}
