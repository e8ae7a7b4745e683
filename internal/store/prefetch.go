//go:build (amd64 || arm64) && !portable

package store

import "unsafe"

// The two ask for cache lines and do not wait for them. They touch nothing: an
// address that is not mapped is ignored. A call costs about a nanosecond, since
// assembly is not inlined, so they pay where a load would miss the cache.

// prefetch asks for the line that p is in.
//
//go:noescape
func prefetch(p unsafe.Pointer)

// prefetchRecord asks for the lines of a record that begins at p, as far as the
// header of its value where key and properties are short.
//
//go:noescape
func prefetchRecord(p unsafe.Pointer)
