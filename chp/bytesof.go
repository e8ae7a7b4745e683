package chp

import (
	"context"
	"unsafe"
)

// bytesOf returns the bytes of s without a copy. They must only be read.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// ended is a context that has ended. What is called with it succeeds only if it need not
// wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
