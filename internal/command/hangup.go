package command

import (
	"context"
	"io"
	"os"
	"syscall"
)

// UntilHangup returns a context that ends, with EPIPE, when nobody reads w any
// more. A write would say so as well, but a watch may have nothing to write for
// hours after the other end of its pipe has gone.
func UntilHangup(ctx context.Context, w io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if o, ok := w.(*output); ok {
		w = o.w
	}
	if file, ok := w.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
			// The goroutine ends with the process: there is no calling back poll.
			go func() {
				if waitHangup(int(file.Fd())) {
					cancel(syscall.EPIPE)
				}
			}()
		}
	}
	return ctx, func() { cancel(nil) }
}
