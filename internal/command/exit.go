package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"clustermap/internal/visible"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes of all commands. A program states them in its help text.
const (
	ExitDone     = 0
	ExitRefused  = 1 // not found, refused, or failed
	ExitUsage    = 2 // the command line is invalid
	ExitNoAnswer = 3 // no connection or no answer in time
)

// Error is an error with the exit code of the process.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Fail is like fmt.Errorf with an exit code. It returns an *Error.
func Fail(code int, format string, a ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, a...)}
}

// errQuiet is for an exit code without a message.
var errQuiet = errors.New("")

// Exit returns an error with an exit code that is not the program's own, such as that of another
// one that it has run. Nothing is printed. For 0 it returns nil.
func Exit(code int) error {
	if code == 0 {
		return nil
	}
	return &Error{Code: code, Err: errQuiet}
}

// ErrorText returns the text of an error for a message. Its control characters, which may
// be a peer's, are escaped, also the ends of lines. The texts of joined errors (errors.Join)
// are separated by separator.
func ErrorText(err error, separator string) string {
	if coded, ok := err.(*Error); ok {
		err = coded.Err
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return visible.String(err.Error())
	}
	all := joined.Unwrap()
	texts, raw := make([]string, len(all)), make([]string, len(all))
	for i, one := range all {
		texts[i], raw[i] = ErrorText(one, separator), one.Error()
	}
	if err.Error() != strings.Join(raw, "\n") {
		return visible.String(err.Error()) // fmt.Errorf with several errors
	}
	return strings.Join(texts, separator)
}

// Body runs a command whose command line is valid.
type Body func(ctx context.Context, cmd *cobra.Command, args []string) error

// Clearable is a text for a flag whose empty value removes something; [Runs] refuses that of
// others.
type Clearable string

func (c *Clearable) Set(value string) error { *c = Clearable(value); return nil }
func (c *Clearable) String() string         { return string(*c) }
func (c *Clearable) Type() string           { return "clearable" }

// noEmptyFlag refuses a flag whose value is an empty text: it comes from a variable that is
// not set, and would be as if the flag were not there, so that a server is without its keys.
func noEmptyFlag(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = Fail(ExitUsage, "--%s: the value is empty", f.Name)
		}
	})
	return err
}

// Runs adapts a body to cobra. An error without an exit code gets ExitRefused. EPIPE is
// not an error, because it means that the reader of the output has gone.
func Runs(b Body) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		err := noEmptyFlag(cmd)
		if err == nil {
			err = b(ctx, cmd, args)
		}
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
