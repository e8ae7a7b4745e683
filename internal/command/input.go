package command

import (
	"context"
	"io"
)

// Interruptible returns r as a reader that ends with ctx. A read of a terminal
// or a pipe cannot be called back, so it is left behind in a goroutine; it ends
// with the process, which is what an interrupted command does next.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err) // io.EOF if nil
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	return out
}
