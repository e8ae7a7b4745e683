package command

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes of all commands. A program states them in its help text.
const (
	ExitDone     = 0
	ExitRefused  = 1 // not found, refused, or failed
	ExitUsage    = 2 // the command line is wrong
	ExitNoAnswer = 3 // nobody was there, or no answer came, in time
)

// Error is an error with the exit code that it ends the process with.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Fail is fmt.Errorf with an exit code. It returns an *Error.
func Fail(code int, format string, a ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, a...)}
}

// Body is what a command does once its command line has been understood.
type Body func(ctx context.Context, cmd *cobra.Command, args []string) error

// Runs adapts a body to cobra. An error without an exit code gets ExitRefused. A pipe
// that nobody reads any more is no error.
func Runs(b Body) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		err := b(ctx, cmd, args)
		var coded *Error
		switch {
		case err == nil, errors.Is(err, syscall.EPIPE):
			return nil
		case errors.As(err, &coded):
			return err
		case ctx.Err() != nil:
			return Fail(ExitRefused, "interrupted")
		default:
			return &Error{Code: ExitRefused, Err: err}
		}
	}
}
