//go:build (amd64 || arm64) && !portable

package store

import "unsafe"

// These functions do not wait for the cache lines, and ignore an address that is not
// mapped. A call costs about a nanosecond, because assembly is not inlined, so they are
// worth it only where a load would miss the cache.

// prefetch prefetches the cache line of p.
//
//go:noescape
func prefetch(p unsafe.Pointer)

// prefetchRecord prefetches the lines of the record at p, up to the header of its value
// if key and properties are short.
//
//go:noescape
func prefetchRecord(p unsafe.Pointer)

// prefetchOld is prefetchRecord for the record at p, and prefetch for its live bit at b.
//
//go:noescape
func prefetchOld(p, b unsafe.Pointer)
