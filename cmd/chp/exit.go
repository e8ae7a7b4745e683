package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes, as the help text of chp states them.
const (
	exitDone     = 0
	exitRefused  = 1 // not found, refused, or failed
	exitUsage    = 2
	exitNoServer = 3 // no server, or no answer, in time
)

// commandError is an error with the exit code it ends the process with.
type commandError struct {
	code int
	err  error
}

func (e *commandError) Error() string { return e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }

// fail is fmt.Errorf with an exit code.
func fail(code int, format string, a ...any) error {
	return &commandError{code: code, err: fmt.Errorf(format, a...)}
}

// body is what a command does once its command line has been understood.
type body func(ctx context.Context, cmd *cobra.Command, args []string) error

// runs adapts a body to cobra. Each error leaves it with an exit code; output
// into a pipe that nobody reads any more is no error.
func runs(b body) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		err := b(ctx, cmd, args)
		var coded *commandError
		switch {
		case err == nil, errors.Is(err, syscall.EPIPE):
			return nil
		case errors.As(err, &coded):
			return err
		case ctx.Err() != nil:
			return fail(exitRefused, "interrupted")
		default:
			return &commandError{code: exitRefused, err: err}
		}
	}
}
