//go:build !(amd64 || arm64) || portable

package chp

import "unsafe"

func prefetchWrite(unsafe.Pointer) {}
