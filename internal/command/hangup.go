package command

import (
	"context"
	"io"
	"os"
	"syscall"
)

// UntilHangup returns a context that ends, with EPIPE as its cause, when the other end
// of the pipe w is closed. A write would notice that too, but a command may have nothing
// to write for hours.
func UntilHangup(ctx context.Context, w io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if file := fileOf(w); file != nil {
		if info, err := file.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
			// The goroutine ends with the process, because poll cannot be canceled.
			go func() {
				if waitHangup(int(file.Fd())) {
					cancel(syscall.EPIPE)
				}
			}()
		}
	}
	return ctx, func() { cancel(nil) }
}
