package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// streams are the three standard ones.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// execute runs the command line and returns its exit code.
func execute(ctx context.Context, args []string, s streams) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(s.in)
	out := &output{w: s.out}
	root.SetOut(out)
	root.SetErr(s.err)
	strict(root) // after SetOut: completion takes the output as it is then

	command, err := root.ExecuteContextC(ctx)
	var failed *commandError
	switch coded := errors.As(err, &failed); {
	case out.err != nil && !coded && !errors.Is(out.err, syscall.EPIPE):
		failed = &commandError{exitRefused, fmt.Errorf("cannot write the output: %w", out.err)}
	case err == nil, errors.Is(err, syscall.EPIPE): // the reader of the output has gone
		return exitDone
	case !coded:
		// What fails before a command's own function runs is the command line.
		failed = &commandError{code: exitUsage, err: err}
	}
	fmt.Fprintf(s.err, "chp: %v\n", failed)
	if failed.code == exitUsage {
		fmt.Fprintf(s.err, "see: %s --help\n", command.CommandPath())
	}
	return failed.code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "chp",
		Short: "A hashmap shared by a cluster (Clustered Hashmap Protocol, RFC 12)",
		Long: `chp serves and uses a hashmap that many programs share: one server gives every
change a sequence number and publishes it; every client holds a replica.

  chp serve                 a server on ports 5556, 5557 and 5558
  chp set /lamp/1 on        sets a key
  chp get /lamp/1           prints its value
  chp watch /lamp/          prints what is there, then every change

Exit codes: 0 done, 1 not found or refused, 2 usage, 3 no server in time.`,
		Version: version(),
		RunE: func(*cobra.Command, []string) error {
			return errors.New("no command given")
		},
		// execute prints them, with an exit code to match.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(
		newServe(),
		newSet(),
		newGet(),
		newDel(),
		newWatch(),
		newDump(),
		newLoad(),
		newBackup(),
		newRestore(),
		newFsck(),
		newBench(),
		newStatus(),
		newFailover(),
		newKeygen(),
		newBenchPeer(),
	)
	return root
}

// version is the module's version, or the commit for a build from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
