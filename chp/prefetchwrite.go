//go:build (amd64 || arm64) && !portable

package chp

import "unsafe"

// prefetchWrite prefetches the cache line of p and the next one for writing. It does
// not wait, and ignores an address that is not mapped.
//
//go:noescape
func prefetchWrite(p unsafe.Pointer)
