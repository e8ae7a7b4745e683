package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clustermap/chp"
	"clustermap/chp/recipes"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

const (
	// lockTTL is the default of --ttl. A command has a tenth of it to end when the lock is lost.
	lockTTL = 30 * time.Second

	lockHelp = `
COMMAND gets standard input, and in its environment
  CHP_TOKEN     the fencing token: it is higher than that of all holders before. A
                resource that remembers the highest one can reject a holder that is late
  CHP_LOCK_KEY  the key of the lock, which exists while it is held: a condition for
                updates of the same map
  CHP_SERVER    the servers of this command, for a chp in COMMAND; likewise, with
                CURVE, its keys: CHP_CURVE_KEY and CHP_CURVE_SERVER_KEY
It runs in a process group of its own, so it cannot read from a terminal. When the lock
is lost, because the server was away for longer than --ttl or the key was deleted, or chp
is interrupted, all processes of the group get SIGTERM, and SIGKILL a tenth of --ttl later;
nobody else has the lock before, unless the key was deleted, or chp itself did not run in
time: what must not be done twice checks $CHP_TOKEN. If chp itself is killed, COMMAND is,
on Linux; the processes that it has started are not.

When COMMAND has ended, also by such a signal, the exit code is its own, or 128 and the number of the signal that ended
it; 126 and 127 mean that it could not be started.`
)

// locking holds the flags of chp lock and chp elect.
type locking struct {
	connection
	ttl   time.Duration
	value string
}

func (l *locking) setUp(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
			return errors.New("want NAME -- COMMAND [ARGUMENT...]")
		}
		return command.Args(2, math.MaxInt)(cmd, args)
	}
	cmd.Flags().DurationVar(&l.ttl, "ttl", lockTTL, "time after which others get the lock of a chp that has died or has no server")
	l.register(cmd, 5*time.Second)
	cmd.Flags().StringVar(&l.value, "value", "", "what the key has as its value, for others to see (default: the machine's name and the process's number)")
}

// open connects, and calls make with the name of the keys.
func (l *locking) open(ctx context.Context, kind, name string, make func(c *chp.Client, name string, o recipes.Options) error) (*client, error) {
	if l.ttl < recipes.MinTTL || l.ttl > maxTTL {
		return nil, fail(exitUsage, "--ttl %v: must be from %v to ten years, %v", l.ttl, recipes.MinTTL, maxTTL)
	}
	if !strings.HasPrefix(name, "/") {
		name = kind + name
	}
	name = strings.TrimSuffix(name, "/")
	l.news = newsChannel()
	c, err := l.connection.open(ctx, chp.ClientOptions{Subtrees: []string{name + "/"}})
	if err != nil {
		return nil, err
	}
	if err := make(c.Client, name, recipes.Options{TTL: l.ttl, Value: []byte(l.value)}); err != nil {
		c.Close()
		return nil, refused(err)
	}
	return c, nil
}

func newsChannel() chan string { return make(chan string, 16) }

func newLock() *cobra.Command {
	var l locking
	var slots int
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "lock NAME [-n SLOTS] -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Waits for the lock NAME, runs COMMAND, and gives the lock back when COMMAND has ended. Those
who wait get it in the order in which they came. NAME is a subtree of the map, such as /locks/nightly; a NAME that
does not begin with a slash is below /locks/. Each who holds or waits has a key in it. With -n as many hold the lock
at a time; all must give the same number.

If the lock is lost, the exit code is 1; so it is if it is not free in the time of --wait.
` + lockHelp,
		Example: `  chp lock nightly -- ./backup.sh
  chp lock nightly --wait 0s -- ./backup.sh
  chp lock licences -n 3 -- simulate model.txt`,
	}
	cmd.Flags().IntVarP(&slots, "slots", "n", 1, "how many hold the lock at a time")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the lock; 0s means not at all (default: without limit)")
	l.setUp(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		limited := cmd.Flags().Changed("wait")
		switch {
		case slots < 1:
			return fail(exitUsage, "--slots %d: must be positive", slots)
		case wait < 0:
			return fail(exitUsage, "--wait %v: must not be negative", wait)
		}
		var s *recipes.Semaphore
		c, err := l.open(ctx, "/locks/", args[0], func(c *chp.Client, name string, o recipes.Options) (err error) {
			s, err = recipes.NewSemaphore(c, name, slots, o)
			return err
		})
		if err != nil {
			return err
		}
		defer c.Close()
		defer s.Close()
		defer l.tell(cmd)()
		waiting, acquire := ctx, s.Acquire
		if limited && wait == 0 {
			waiting, acquire = ctx, s.TryAcquire
		} else if limited {
			var stop context.CancelFunc
			waiting, stop = context.WithTimeout(ctx, wait)
			defer stop()
		}
		held, err := acquire(waiting)
		switch {
		case errors.Is(err, recipes.ErrHeld), limited && errors.Is(err, context.DeadlineExceeded):
			return fail(exitRefused, "the lock %s is held%s", args[0], byWhom(s.Holders()))
		case err != nil:
			return c.confirm(err)
		}
		code, err := l.run(ctx, cmd, c, held, args[1:])
		lost := held.Err()
		if err == nil && lost == nil {
			err = unlock(ctx, held)
		}
		switch {
		case errors.Is(lost, recipes.ErrLost):
			return fail(exitRefused, "the lock %s is lost", args[0])
		case err != nil:
			return err
		}
		return command.Exit(code)
	})
	return cmd
}

func newElect() *cobra.Command {
	var l locking
	cmd := &cobra.Command{
		Use:   "elect NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command on one machine at a time",
		Long: `Waits until it is the leader of the election NAME, and runs COMMAND. Of all that run chp elect
with this NAME one is the leader; when it ends, or cannot reach the server any more, the next one is. If the leadership is
lost, COMMAND is ended, and chp waits to be the leader again. NAME is a subtree of the map, such as /elections/cron; a NAME that
does not begin with a slash is below /elections/. The key in it with the lowest ticket, or sequence, is the leader's.

When COMMAND has ended by itself, chp resigns and ends.
` + lockHelp,
		Example: `  chp elect cron -- ./run-jobs.sh
  chp elect gateway --value 10.0.0.7:80 -- ./gateway`,
	}
	l.setUp(cmd)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		var e *recipes.Election
		c, err := l.open(ctx, "/elections/", args[0], func(c *chp.Client, name string, o recipes.Options) (err error) {
			e, err = recipes.NewElection(c, name, o)
			return err
		})
		if err != nil {
			return err
		}
		defer c.Close()
		defer e.Close()
		defer l.tell(cmd)()
		for {
			held, err := e.Campaign(ctx, nil)
			if err != nil {
				return c.confirm(err)
			}
			code, err := l.run(ctx, cmd, c, held, args[1:])
			lost := held.Err() != nil
			if lost && ctx.Err() == nil {
				l.say("lost the leadership of %s; waiting for it again", args[0])
				continue
			}
			if err == nil && !lost {
				err = unlock(ctx, held)
			}
			if err != nil {
				return err
			}
			return command.Exit(code)
		}
	})
	return cmd
}

// tell prints what is said of the connection, until the function that it returns is called.
func (n *connection) tell(cmd *cobra.Command) (stop func()) {
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case line := <-n.news:
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended) }
}

// run runs the command while the lock is held, and returns its exit code.
func (l *locking) run(ctx context.Context, cmd *cobra.Command, c *client, held *recipes.Lock, line []string) (code int, err error) {
	within, stop := held.Context(ctx)
	defer stop()
	child := exec.CommandContext(within, line[0], line[1:]...)
	child.Env = append(outerEnvironment(c.servers, l.curve.Environment()),
		"CHP_TOKEN="+strconv.FormatInt(held.Token(), 10), "CHP_LOCK_KEY="+held.Key())
	child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), command.Exact(cmd.OutOrStdout()), command.Exact(cmd.ErrOrStderr())
	err = command.RunGroup(child, l.ttl/10)
	ended := (*exec.ExitError)(nil)
	switch {
	case child.ProcessState == nil && errors.Is(err, exec.ErrNotFound):
		return 0, fail(127, "%w", err)
	case child.ProcessState == nil && within.Err() == nil:
		return 0, fail(126, "%w", err)
	case child.ProcessState == nil, err != nil && !errors.As(err, &ended) && !errors.Is(err, exec.ErrWaitDelay) && within.Err() == nil:
		return 0, err
	}
	if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return child.ProcessState.ExitCode(), nil
}

// unlock gives the lock back, also after an interruption.
func unlock(ctx context.Context, held *recipes.Lock) error {
	leaving, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer stop()
	err := held.Unlock(leaving)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // it expires
	}
	return refused(err)
}

// byWhom returns the holders for a message.
func byWhom(holders []recipes.Holder) string {
	var b strings.Builder
	for i, h := range holders {
		if i == 0 {
			b.WriteString(" by ")
		} else {
			b.WriteString(", ")
		}
		b.Write(command.AppendPlain(nil, h.Value, false))
	}
	return b.String()
}
