package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"clustermap/internal/command"
	"clustermap/internal/wake"
	"clustermap/patterns/espresso"
	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

func newReplay() *cobra.Command {
	r := replay{wait: 1}
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Replay a recording of zdev tap",
		Long: `Sends the messages of a recording again, with the same pauses between them, and prints
each event like zdev tap. It sends:

  pubsub    the messages of the publishers, with an XPUB
  reqrep    the requests, with a DEALER, and counts the replies
  pipeline  the messages, with a PUSH

It prints, but does not send, subscriptions, replies and gaps in the recording. It drops
no messages for a slow peer, so a slow peer delays the others.

With --speed 10 it is ten times as fast as the recording, with 0 as fast as the peers
read. Without --bind and --connect it only prints the file, without pauses unless --speed
is given.

If the last record is incomplete, because the tap was killed, all records before it are
replayed, and a message on standard error reports it. If a record is damaged, the records
before it are replayed, and the exit code is 1. It is 3 if there are fewer replies than
requests.

` + eventHelp,
		Example: `  zdev replay flow.espresso --bind tcp://*:6000
  zdev replay flow.espresso --bind tcp://*:6000 --speed 0 --quiet --wait 3
  zdev replay flow.espresso --json --topic A
  zdev replay requests.espresso --connect tcp://127.0.0.1:5560`,
		Args: command.Args(1, 1),
	}
	flags := cmd.Flags()
	r.binds.bind = true
	r.binds.register(flags, "bind", "`endpoint` to bind")
	r.connects.register(flags, "connect", "`endpoint` to connect to")
	flags.Float64Var(&r.speed, "speed", 1, "speed relative to the recording; 0 is as fast as possible")
	flags.Var((*command.Number)(&r.wait), "wait", "number of subscriptions that a publisher waits for before it starts")
	flags.DurationVar(&r.timeout, "timeout", 5*time.Second, "how long to wait for replies at the end")
	r.printing.register(cmd)
	r.curve = command.DeviceKeys{Keys: curve}
	r.curve.Register(flags)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return r.run(ctx, cmd, args[0])
	})
	return cmd
}

// replay holds the flags and the state of the command.
type replay struct {
	printing
	binds, connects side
	speed           float64
	wait            int
	timeout         time.Duration
	curve           command.DeviceKeys

	socket  sockets.Socket
	send    func(ctx context.Context, frames ...[]byte) error // nil without endpoints
	skip    int                                               // number of leading frames of a message that are not sent
	played  int64
	replied chan struct{} // receives a value when replies has changed; nil if no replies are expected
	replies atomic.Int64
}

func (r *replay) run(ctx context.Context, cmd *cobra.Command, name string) (err error) {
	filter, err := r.filter()
	switch {
	case err != nil:
		return err
	case r.speed < 0 || math.IsNaN(r.speed):
		return command.Fail(command.ExitUsage, "--speed %v: must not be negative", r.speed)
	case r.wait < 0:
		return command.Fail(command.ExitUsage, "--wait %d: must not be negative", r.wait)
	case r.timeout < 0:
		return command.Fail(command.ExitUsage, "--timeout must not be negative")
	}
	file, err := os.Open(name)
	if err != nil {
		return command.Fail(command.ExitRefused, "cannot read the recording: %w", err)
	}
	defer file.Close()
	recording, err := espresso.NewReader(bufio.NewReaderSize(file, 256<<10))
	if err != nil {
		return command.Fail(command.ExitRefused, "%s: %s", name, plain(err))
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	if len(r.binds.list)+len(r.connects.list) > 0 {
		if err := r.open(ctx, cmd, recording.Ends()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.socket.Close()) }()
	} else if !cmd.Flags().Changed("speed") {
		r.speed = 0
	}

	out := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
	format := r.format()
	err = espresso.Play(ctx, recording, r.speed, func(e *espresso.Event) error {
		if !filter.Pass(e) {
			return nil
		}
		if !r.quiet {
			if _, err := out.Write(format(out.AvailableBuffer(), e)); err != nil {
				return err
			}
			if r.speed > 0 {
				if err := out.Flush(); err != nil {
					return err
				}
			}
		}
		if r.send == nil || e.Op != espresso.OpMessage || e.From != espresso.DirectionFromFrontend || len(e.Frames) <= r.skip {
			return nil
		}
		r.played++
		return r.send(ctx, e.Frames[r.skip:]...)
	})
	if failed := out.Flush(); err == nil || errors.As(err, new(*espresso.TornError)) {
		err = errors.Join(err, failed)
	}
	return r.finish(ctx, cmd, name, err)
}

// finish returns the error of the command, and reports the result on standard error.
func (r *replay) finish(ctx context.Context, cmd *cobra.Command, name string, err error) error {
	var torn *espresso.TornError
	var corrupt *espresso.CorruptError
	switch {
	case ctx.Err() != nil:
		return nil // a signal
	case errors.As(err, &torn):
		command.Say(cmd.ErrOrStderr(), fmt.Sprintf("zdev: %s: the last record, at byte %d, is incomplete; all records before it were replayed\n", name, torn.Offset))
	case errors.As(err, &corrupt):
		return command.Fail(command.ExitRefused, "%s is damaged at byte %d: %s; all records before it were replayed", name, corrupt.Offset, corrupt.Reason)
	case err != nil:
		return err
	}
	if r.send == nil {
		return nil
	}
	if r.replied == nil {
		command.Say(cmd.ErrOrStderr(), fmt.Sprintf("zdev: sent %d messages\n", r.played))
		return nil
	}
	limit := time.After(r.timeout)
	for r.replies.Load() < r.played {
		select {
		case <-r.replied:
		case <-ctx.Done():
			return nil
		case <-limit:
			return command.Fail(command.ExitNoAnswer, "sent %d requests, but received only %d replies within %v after the last one", r.played, r.replies.Load(), r.timeout)
		}
	}
	command.Say(cmd.ErrOrStderr(), fmt.Sprintf("zdev: sent %d requests, received %d replies\n", r.played, r.replies.Load()))
	return nil
}

// open creates and attaches the socket, and waits for subscriptions.
func (r *replay) open(ctx context.Context, cmd *cobra.Command, ends espresso.Ends) error {
	var o sockets.Options
	bound, connected, err := r.curve.Security()
	switch {
	case err != nil:
		return err
	case len(r.binds.list) > 0 && len(r.connects.list) > 0 && (bound.CurveServer || !connected.CurveSecretKey.IsZero()):
		return command.Fail(command.ExitUsage, "with CURVE give either --bind or --connect")
	case len(r.binds.list) > 0:
		o.Security = bound
	default:
		o.Security = connected
	}
	o.Monitor = r.binds.monitor(ctx, cmd)
	if len(r.connects.list) > 0 {
		o.Monitor = r.connects.monitor(ctx, cmd)
	}
	var at []string
	begin := func() error { return nil }
	switch ends.Frontend {
	case zmtp.TypeXSub, zmtp.TypeSub:
		o.FullPolicy, o.XPubVerbose = sockets.PolicyBlock, true
		s, err := sockets.NewXPub(o)
		if err != nil {
			return command.Fail(command.ExitUsage, "%w", err)
		}
		r.socket, r.send = s, s.Send
		begin = func() error { return r.subscribed(ctx, s) }
	case zmtp.TypePull:
		s, err := sockets.NewPush(o)
		if err != nil {
			return command.Fail(command.ExitUsage, "%w", err)
		}
		r.socket, r.send = s, s.Send
	case zmtp.TypeRouter:
		s, err := sockets.NewDealer(o)
		if err != nil {
			return command.Fail(command.ExitUsage, "%w", err)
		}
		r.socket, r.send, r.skip = s, s.Send, 1 // the service's ROUTER adds our identity
		r.count(ctx, s)
	default:
		return command.Fail(command.ExitRefused, "a recording with a frontend of type %v cannot be sent", ends.Frontend)
	}
	for _, s := range []*side{&r.binds, &r.connects} {
		if len(s.list) > 0 {
			if err := s.attach(ctx, r.socket); err != nil {
				return errors.Join(err, r.socket.Close())
			}
			at = append(at, s.actual...)
		}
	}
	command.Ready(cmd, o.Security, strings.Join(at, " "))
	return begin()
}

// subscribed waits for the first subscriptions, and starts a goroutine that receives later
// ones.
func (r *replay) subscribed(ctx context.Context, s *sockets.XPub) error {
	for n := 0; n < r.wait; {
		m, err := s.Recv(ctx)
		if err != nil {
			return nil // a signal
		}
		if len(m[0]) > 0 && m[0][0] == 1 {
			n++
		}
	}
	go func() {
		var b sockets.Batch
		defer b.Release()
		for s.RecvBatch(ctx, &b) == nil {
		}
	}()
	return nil
}

// count starts a goroutine that counts replies.
func (r *replay) count(ctx context.Context, s *sockets.Dealer) {
	r.replied = make(chan struct{}, 1)
	go func() {
		var b sockets.Batch
		defer b.Release()
		for s.RecvBatch(ctx, &b) == nil {
			r.replies.Add(int64(b.Len()))
			wake.Signal(r.replied)
		}
	}()
}

// plain returns the text of an error without the name of the package.
func plain(err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, ": "); ok {
		return rest
	}
	return text
}
