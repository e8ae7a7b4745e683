//go:build !(amd64 || arm64) || portable

package chp

import "unsafe"

func prefetch(unsafe.Pointer)       {}
func prefetchRecord(unsafe.Pointer) {}
