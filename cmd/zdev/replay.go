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
	"clustermap/patterns/espresso"
	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/spf13/cobra"
)

func newReplay() *cobra.Command {
	r := replay{wait: 1}
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Play back what zdev tap has recorded",
		Long: `Sends the messages of a recording again, with the pauses that were between them, and
prints each event as zdev tap does. What was recorded between

  publishers and subscribers  is published by an XPUB: what the publishers sent
  clients and services        is sent by a DEALER: the requests; replies are counted
  the ends of a pipeline      is sent by a PUSH

Subscriptions, replies, and what was lost in recording are printed and not sent. No
message is dropped for a peer that reads slowly: it holds up the others.

With --speed 10 it plays ten times as fast as it was recorded, with 0 as fast as the
peers take it. Without --bind and --connect nothing is sent: the file is printed, at
once unless --speed is given.

A recording that ends in the middle of a record, because the tap was killed, is played
up to there, and standard error says so. One that is damaged is played up to the damage,
and the exit code is 1. It is 3 if not as many replies came as requests were sent.

` + eventHelp,
		Example: `  zdev replay flow.espresso --bind tcp://*:6000
  zdev replay flow.espresso --bind tcp://*:6000 --speed 0 --quiet --wait 3
  zdev replay flow.espresso --json --topic A
  zdev replay requests.espresso --connect tcp://127.0.0.1:5560`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	r.binds.bind = true
	r.binds.register(flags, "bind", "`endpoint` to bind")
	r.connects.register(flags, "connect", "`endpoint` to connect to")
	flags.Float64Var(&r.speed, "speed", 1, "how many times as fast as it was recorded; 0 is as fast as possible")
	flags.Var((*command.Number)(&r.wait), "wait", "how many subscriptions to wait for before a publisher begins; 0 begins at once")
	flags.DurationVar(&r.timeout, "timeout", 5*time.Second, "how long to wait at the end for replies")
	r.printing.register(cmd)
	r.curve = command.DeviceKeys{Keys: curve}
	r.curve.Register(flags)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return r.run(ctx, cmd, args[0])
	})
	return cmd
}

// replay are the flags of the command, and what it sends with.
type replay struct {
	printing
	binds, connects side
	speed           float64
	wait            int
	timeout         time.Duration
	curve           command.DeviceKeys

	socket  sockets.Socket
	send    func(ctx context.Context, frames ...[]byte) error // nil without endpoints
	skip    int                                               // frames of a message that are not sent
	played  int64
	replied chan struct{} // gets a value when replies has changed; nil if none are expected
	replies atomic.Int64
}

func (r *replay) run(ctx context.Context, cmd *cobra.Command, name string) (err error) {
	filter, err := r.filter()
	switch {
	case err != nil:
		return err
	case r.speed < 0 || math.IsNaN(r.speed):
		return command.Fail(command.ExitUsage, "--speed %v: give a number above 0, or 0", r.speed)
	case r.wait < 0:
		return command.Fail(command.ExitUsage, "--wait %d: give a number above 0, or 0", r.wait)
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
		if r.send == nil || e.Op != espresso.OpMessage || e.From != espresso.FromFrontend || len(e.Frames) <= r.skip {
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

// finish says how it ended.
func (r *replay) finish(ctx context.Context, cmd *cobra.Command, name string, err error) error {
	var torn *espresso.TornError
	var corrupt *espresso.CorruptError
	switch {
	case ctx.Err() != nil:
		return nil // asked to end
	case errors.As(err, &torn):
		command.Say(cmd.ErrOrStderr(), fmt.Sprintf("zdev: %s ends in the middle of a record, which begins at byte %d; everything before it was played\n", name, torn.Offset))
	case errors.As(err, &corrupt):
		return command.Fail(command.ExitRefused, "%s is damaged at byte %d: %s; everything before it was played", name, corrupt.Offset, corrupt.Reason)
	case err != nil:
		return err
	}
	if r.send == nil {
		return nil
	}
	if r.replied == nil {
		command.Say(cmd.ErrOrStderr(), fmt.Sprintf("zdev: played %d messages\n", r.played))
		return nil
	}
	limit := time.After(r.timeout)
	for r.replies.Load() < r.played {
		select {
		case <-r.replied:
		case <-ctx.Done():
			return nil
		case <-limit:
			return command.Fail(command.ExitNoAnswer, "played %d requests, and got %d replies within %v after the last", r.played, r.replies.Load(), r.timeout)
		}
	}
	command.Say(cmd.ErrOrStderr(), fmt.Sprintf("zdev: played %d requests, got %d replies\n", r.played, r.replies.Load()))
	return nil
}

// open makes the socket that plays, attaches it, and waits for subscriptions.
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
	var at []string
	begin := func() error { return nil }
	switch ends.Frontend {
	case zmtp.XSUB, zmtp.SUB:
		o.FullPolicy, o.XPubVerbose = sockets.Block, true
		s, err := sockets.NewXPub(o)
		if err != nil {
			return command.Fail(command.ExitUsage, "%w", err)
		}
		r.socket, r.send = s, s.Send
		begin = func() error { return r.subscribed(ctx, s) }
	case zmtp.PULL:
		s, err := sockets.NewPush(o)
		if err != nil {
			return command.Fail(command.ExitUsage, "%w", err)
		}
		r.socket, r.send = s, s.Send
	case zmtp.ROUTER:
		s, err := sockets.NewDealer(o)
		if err != nil {
			return command.Fail(command.ExitUsage, "%w", err)
		}
		r.socket, r.send, r.skip = s, s.Send, 1 // the service's ROUTER puts its own identity before it
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

// subscribed waits for the first subscriptions, and takes those that come later.
func (r *replay) subscribed(ctx context.Context, s *sockets.XPub) error {
	for n := 0; n < r.wait; {
		m, err := s.Recv(ctx)
		if err != nil {
			return nil // asked to end
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

// count counts replies.
func (r *replay) count(ctx context.Context, s *sockets.Dealer) {
	r.replied = make(chan struct{}, 1)
	go func() {
		var b sockets.Batch
		defer b.Release()
		for s.RecvBatch(ctx, &b) == nil {
			r.replies.Add(int64(b.Len()))
			select {
			case r.replied <- struct{}{}:
			default:
			}
		}
	}()
}

// plain is the text of an error without the package's name in it.
func plain(err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, ": "); ok {
		return rest
	}
	return text
}
