package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/kvjson"

	"github.com/spf13/cobra"
)

const execHelp = `
With --exec COMMAND nothing is printed: the shell (sh -c; cmd /C on Windows) runs
COMMAND for each event, one after the other, in the order of the events. It gets the
value on standard input, and in its environment
  CHP_OP        set, del or synced; with --bookmarks also bookmark
  CHP_KEY       the key; empty for synced and bookmark
  CHP_VALUE     the value; not set if it is over 32 KiB or contains NUL
  CHP_CAUSE     as above; empty for synced
  CHP_SEQUENCE  sequence number
  CHP_TTL       remaining time to live in seconds, if the key expires
  CHP_SERVER    the servers of this command, for a chp in COMMAND; likewise, with
                CURVE, its keys: CHP_CURVE_KEY and CHP_CURVE_SERVER_KEY
What COMMAND prints goes to the output of chp watch. Events that happen while it runs
wait in a queue; if that is full, chp watch ends with exit code 1. A COMMAND that runs
longer than --exec-timeout gets SIGTERM, with all processes that it has started, and
SIGKILL five seconds later. That, and an exit code other than 0, is reported on
standard error; then chp watch continues, or with --on-error stop ends with exit
code 1. When chp watch is interrupted, it stops COMMAND in the same way.`

const (
	// execGrace is the time between SIGTERM and SIGKILL.
	execGrace = 5 * time.Second

	// maxVariable is the size of the largest value in the environment. Linux limits
	// one variable to 128 KiB, Windows to 32,767 characters.
	maxVariable = 32 << 10

	defaultExecTimeout = time.Minute
)

// watchExec runs a command for each event of a watch.
type watchExec struct {
	line    string
	timeout time.Duration
	onError string // continue or stop
	environ []string
}

func (x *watchExec) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&x.line, "exec", "", "run `COMMAND` for each event instead of printing it")
	flags.DurationVar(&x.timeout, "exec-timeout", defaultExecTimeout, "how long COMMAND may run")
	flags.StringVar(&x.onError, "on-error", "continue", "what to do after COMMAND has failed: continue, stop")
	command.Complete(cmd, "on-error", "continue", "stop")
	command.Exclude(cmd, "exec", "json")
}

// check returns an error if the flags are invalid.
func (x *watchExec) check(cmd *cobra.Command) error {
	flags := cmd.Flags()
	switch {
	case x.onError != "continue" && x.onError != "stop":
		return fail(exitUsage, "--on-error %q: must be continue or stop", x.onError)
	case x.timeout <= 0:
		return fail(exitUsage, "--exec-timeout %v: must be positive", x.timeout)
	case flags.Changed("exec") && strings.TrimSpace(x.line) == "":
		return fail(exitUsage, "--exec: the command is empty")
	case !flags.Changed("exec") && (flags.Changed("exec-timeout") || flags.Changed("on-error")):
		return fail(exitUsage, "--exec-timeout and --on-error need --exec")
	}
	return nil
}

// follow runs the command for the events of w until an error.
func (x *watchExec) follow(ctx context.Context, cmd *cobra.Command, w *chp.Watch) error {
	for {
		e, err := w.Next(ctx)
		if err == nil {
			err = ctx.Err() // Next returns queued events after the end of ctx, too
		}
		if err != nil {
			return err
		}
		if err := x.run(ctx, e, command.Exact(cmd.OutOrStdout()), command.Exact(cmd.ErrOrStderr())); err != nil && ctx.Err() == nil {
			what := fmt.Sprintf("%s %s", kvjson.OpName(e.Op), command.AppendPlain(nil, e.Key, false))
			if x.onError == "stop" {
				return fail(exitRefused, "the command for %s failed: %w", what, err)
			}
			command.Say(cmd.ErrOrStderr(), fmt.Sprintf("chp: the command for %s failed: %s\n", what, command.ErrorText(err, "; ")))
		}
	}
}

// errExecTimeout is the error of a command that ran longer than --exec-timeout.
var errExecTimeout = errors.New("it ran longer than --exec-timeout")

// run runs the command for one event.
func (x *watchExec) run(ctx context.Context, e chp.Event, out, stderr io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, x.timeout, errExecTimeout)
	defer cancel()
	shell, option := "sh", "-c"
	if runtime.GOOS == "windows" {
		shell, option = cmp.Or(os.Getenv("COMSPEC"), "cmd"), "/C"
	}
	child := exec.CommandContext(ctx, shell, option, x.line)
	child.Env = x.environment(e)
	child.Stdin = bytes.NewReader(e.Value)
	child.Stdout, child.Stderr = out, stderr
	err := command.RunGroup(child, execGrace)
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // a process that it has started still runs
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// environment returns the environment of the command for an event.
func (x *watchExec) environment(e chp.Event) []string {
	cause := ""
	if e.Cause != 0 {
		cause = e.Cause.String()
	}
	env := append(x.environ[:len(x.environ):len(x.environ)],
		"CHP_OP="+kvjson.OpName(e.Op),
		"CHP_KEY="+string(e.Key),
		"CHP_CAUSE="+cause,
		"CHP_SEQUENCE="+strconv.FormatInt(e.Sequence, 10),
	)
	if len(e.Value) <= maxVariable && bytes.IndexByte(e.Value, 0) < 0 {
		env = append(env, "CHP_VALUE="+string(e.Value))
	}
	if e.TTL > 0 {
		env = append(env, "CHP_TTL="+strconv.FormatFloat(e.TTL.Seconds(), 'f', 3, 64))
	}
	return env
}

// outerEnvironment returns the environment of this process for the command, without
// variables that describe an event, and with the servers and the keys of this one.
func outerEnvironment(servers, keys []string) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "CHP_OP", "CHP_KEY", "CHP_VALUE", "CHP_CAUSE", "CHP_SEQUENCE", "CHP_TTL", serverVariable:
		default:
			env = append(env, v)
		}
	}
	return append(append(env, serverVariable+"="+strings.Join(servers, ",")), keys...) // the last one of a name counts
}
