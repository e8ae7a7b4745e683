package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs the program's command line until it is done or a signal ends it, and
// returns its exit code. The context that commands get ends with SIGINT and SIGTERM.
func Main(root *cobra.Command) int {
	// With a handler a write to a closed pipe returns EPIPE, for us to end on in
	// good order, where the default would kill the process in the middle of a
	// write. (Ignoring the signal would pass on to child processes.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks; once asked, a second one has its default effect.
	context.AfterFunc(ctx, stop)

	return execute(ctx, root, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}

// streams are the three standard ones.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// execute runs the command line and returns its exit code.
func execute(ctx context.Context, root *cobra.Command, args []string, s streams) int {
	// Printed here, with an exit code to match.
	root.SilenceErrors, root.SilenceUsage = true, true
	if root.RunE == nil {
		root.RunE = func(*cobra.Command, []string) error { return errors.New("no command given") }
	}
	root.Version = version()
	root.SetArgs(args)
	root.SetIn(s.in)
	out := &output{w: s.out}
	root.SetOut(out)
	root.SetErr(s.err)
	strict(root) // after SetOut: completion takes the output as it is then

	command, err := root.ExecuteContextC(ctx)
	var failed *Error
	switch coded := errors.As(err, &failed); {
	case out.err != nil && !coded && !errors.Is(out.err, syscall.EPIPE):
		failed = &Error{ExitRefused, fmt.Errorf("cannot write the output: %w", out.err)}
	case err == nil, errors.Is(err, syscall.EPIPE): // the reader of the output has gone
		return ExitDone
	case !coded:
		// What fails before a command's own function runs is the command line.
		failed = &Error{Code: ExitUsage, Err: err}
	}
	text := fmt.Sprintf("%s: %v\n", root.Name(), failed)
	if failed.Code == ExitUsage {
		text += fmt.Sprintf("see: %s --help\n", command.CommandPath())
	}
	Say(s.err, text)
	return failed.Code
}

// version is the module's version, or the commit for a build from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
