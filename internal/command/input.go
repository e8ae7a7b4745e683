package command

import (
	"context"
	"io"
)

// Interruptible returns a reader that reads from r until ctx is done. A read from a
// terminal or a pipe cannot be canceled, so its goroutine remains until the process
// ends, which an interrupted command does next.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err) // io.EOF if nil
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	return out
}
