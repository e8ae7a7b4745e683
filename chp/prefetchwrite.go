//go:build (amd64 || arm64) && !portable

package chp

import "unsafe"

// prefetchWrite asks for the line that p is in and for the one behind it, to be
// written: another core's copies of them are dropped meanwhile. It does not wait for them, and
// touches nothing: an address that is not mapped is ignored.
//
//go:noescape
func prefetchWrite(p unsafe.Pointer)
