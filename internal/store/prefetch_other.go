//go:build !(amd64 || arm64) || portable

package store

import "unsafe"

func prefetch(unsafe.Pointer)         {}
func prefetchRecord(unsafe.Pointer)   {}
func prefetchOld(p, b unsafe.Pointer) {}
