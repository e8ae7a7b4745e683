package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs the program's command line and returns its exit code. The context of the
// command ends with the first of SIGINT, SIGTERM and, unless it has files to read again,
// SIGHUP.
func Main(root *cobra.Command) int {
	// With a handler, a write to a closed pipe returns EPIPE, so that the command can
	// end cleanly. By default the signal would kill the process. (Child processes
	// would inherit an ignored signal.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	stderr := &output{w: os.Stderr, lines: true}
	ctx, stop := untilSignal(context.Background(), root.Name(), stderr)
	defer stop()

	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], cobra.ShellCompRequestCmd) { // a shell that completes has no use for them
		warnings.w = leveled{stderr, slog.LevelWarn}
	}
	return execute(ctx, root, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: stderr})
}

// untilSignal returns a context that ends with a signal. After it, a second SIGINT or
// SIGTERM has its default effect. For SIGHUP see untilHangup; a program under nohup, which
// ignores it, goes on ignoring it.
func untilSignal(ctx context.Context, program string, stderr io.Writer) (context.Context, context.CancelFunc) {
	closed := func() {}
	if !signal.Ignored(syscall.SIGHUP) {
		ctx, closed = untilHangup(ctx, program, stderr)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, func() {
		stop()
		closed()
	}
}

// streams holds the standard streams.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// execute runs the command line and returns its exit code.
func execute(ctx context.Context, root *cobra.Command, args []string, s streams) int {
	// Errors are printed below.
	root.SilenceErrors, root.SilenceUsage = true, true
	if root.RunE == nil {
		root.RunE = func(*cobra.Command, []string) error { return errors.New("no command given") }
	}
	root.Args = knownCommand
	root.Version = readBuild(root.Name()).Version
	root.SetArgs(args)
	root.SetIn(s.in)
	out := &output{w: s.out}
	stderr, ok := s.err.(*output)
	if !ok {
		stderr = &output{w: s.err, lines: true}
	}
	root.SetOut(out)
	root.SetErr(stderr)
	wrapHelp(root)
	root.SetFlagErrorFunc(flagError)
	argless(root)
	strict(root) // after SetOut, because completion uses the output set before
	if cmd, _, err := root.Find(args); err == nil && cmd.Flags().Lookup(LogFormat) != nil && wantsJSON(args) {
		stderr.records.Store(true)
	}

	command, err := root.ExecuteContextC(ctx)
	unwritten := out.finish()
	var failed *Error
	switch coded := errors.As(err, &failed); {
	case unwritten != nil && !coded && !errors.Is(unwritten, syscall.EPIPE):
		failed = &Error{ExitRefused, fmt.Errorf("cannot write the output: %w", unwritten)}
	case err == nil, errors.Is(err, syscall.EPIPE): // the reader of the output has gone
		return ExitDone
	case !coded:
		// An error before the command's function runs concerns the command line.
		failed = &Error{Code: ExitUsage, Err: err}
	}
	if failed.Err == errQuiet {
		return failed.Code
	}
	text := fmt.Sprintf("%s: %s\n", root.Name(), ErrorText(failed, "\n"))
	if failed.Code == ExitUsage {
		text += fmt.Sprintf("see: %s --help\n", command.CommandPath())
	}
	Say(leveled{stderr, slog.LevelError}, text)
	return failed.Code
}
