package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"clustermap/internal/command"
	"clustermap/patterns/snail"

	"github.com/spf13/cobra"
)

// exitLagged is the exit code of a subscriber that has fallen behind.
const exitLagged = 4

func newLag() *cobra.Command {
	var o snail.Options
	curve := command.ClientKeys{Keys: curve}
	var unsynchronised, asJSON bool
	var every, timeout time.Duration
	cmd := &cobra.Command{
		Use:   "lag",
		Short: "Check how far a subscriber is behind its publisher",
		Long: `Subscribes, reads the time at which each message was sent, and ends with exit code 4
when a message is older than --max. It runs until then, or until SIGINT, SIGTERM or SIGHUP.

The last frame of a message is its stamp: the publisher's clock in milliseconds since
1970, as decimal text. With --sequence the frame before it is a sequence number, and exit
code 4 also means that more than --max-missed messages in a row were missing.

The delay is this machine's clock minus the stamp, so the clocks must be synchronised.
With --unsynchronised, delays are relative to the smallest one so far. A delay that all
messages have is then not noticed.

With --stats it prints a line about the messages since the last line on standard output at
each interval: their number, and the smallest, mean and largest delay. A line without
messages has no delays.`,
		Example: `  zdev lag --connect tcp://10.0.0.7:5556 --max 1s
  zdev lag --connect tcp://10.0.0.7:5556 --topic price/ --unsynchronised \
    --stats 10s --json`,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Endpoints, "connect", nil, "`endpoint` of the publisher; repeat it for several")
	command.Endpoints(flags, "connect")
	flags.StringArrayVar(&o.Topics, "topic", nil, "`prefix` to subscribe to; repeat it for several (default everything)")
	flags.DurationVar(&o.MaxDelay, "max", snail.DefaultMaxDelay, "largest delay")
	flags.BoolVar(&o.Sequence, "sequence", false, "check sequence numbers")
	flags.Uint64Var(&o.MaxMissed, "max-missed", 0, "maximum number of missing messages in a row, with --sequence")
	flags.BoolVar(&unsynchronised, "unsynchronised", false, "do not compare the clocks")
	flags.DurationVar(&timeout, "timeout", 0, "how long to wait for the first message; 0 means forever")
	flags.DurationVar(&every, "stats", 0, "interval between two lines of statistics; 0 means none")
	flags.BoolVar(&asJSON, "json", false, "print statistics as JSON objects, one per line")
	curve.Register(flags)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) (err error) {
		switch {
		case len(o.Endpoints) == 0:
			return command.Fail(command.ExitUsage, "give --connect")
		case o.MaxDelay <= 0:
			return command.Fail(command.ExitUsage, "--max must be positive")
		case every < 0 || timeout < 0:
			return command.Fail(command.ExitUsage, "--stats and --timeout must not be negative")
		case asJSON && every == 0:
			return command.Fail(command.ExitUsage, "--json needs --stats: nothing else is printed")
		case o.MaxMissed > 0 && !o.Sequence:
			return command.Fail(command.ExitUsage, "--max-missed needs --sequence")
		case len(o.Endpoints) > 1 && (o.Sequence || unsynchronised):
			return command.Fail(command.ExitUsage, "--sequence and --unsynchronised need a single --connect")
		}
		if unsynchronised {
			o.Clocks = snail.ClocksUnsynchronised
		}
		if o.Socket.Security, err = curve.Security(); err != nil {
			return err
		}
		o.Socket.Monitor = monitor(ctx, cmd, "connect", o.Endpoints...)
		sub, err := snail.NewSubscriber(o)
		if err != nil {
			return command.EndpointError("--connect", strings.Join(o.Endpoints, " "), err)
		}
		defer sub.Close()
		command.Ready(cmd, o.Socket.Security, "connect "+strings.Join(o.Endpoints, " "))
		if every > 0 {
			var done context.CancelFunc
			ctx, done = command.UntilHangup(ctx, cmd.OutOrStdout())
			defer done()
		}
		w := &lagWatch{sub: sub, out: bufio.NewWriter(cmd.OutOrStdout()), json: asJSON}
		if timeout > 0 {
			first, cancel := context.WithTimeout(ctx, timeout)
			var lag snail.Lag
			if _, lag, err = sub.Next(first); err == nil {
				w.add(lag.Delay)
			}
			cancel()
		}
		for err == nil {
			err = w.run(ctx, every)
		}
		switch {
		case errors.Is(err, snail.ErrLagged): // even if a signal has arrived too
			return command.Fail(exitLagged, "%s", strings.TrimPrefix(err.Error(), "snail: "))
		case ctx.Err() != nil:
			return nil // a signal, or the reader of the output has gone
		case errors.Is(err, context.DeadlineExceeded):
			return command.Fail(command.ExitNoAnswer, "no message in %v (%d without a stamp)", timeout, sub.Stats().Malformed)
		}
		return err
	})
	return cmd
}

// lagWatch reads messages and adds up their delays.
type lagWatch struct {
	sub  *snail.Subscriber
	out  *bufio.Writer
	json bool

	messages          int
	sum               float64 // seconds
	smallest, largest time.Duration
	before            snail.Stats // at the last line
}

// run reads messages for an interval and prints a line. If interval is 0, it only reads.
func (w *lagWatch) run(ctx context.Context, interval time.Duration) error {
	within := ctx
	if interval > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, interval)
		defer cancel()
	}
	for within.Err() == nil {
		_, lag, err := w.sub.Next(within)
		switch {
		case err == nil:
			w.add(lag.Delay)
		case within.Err() == nil || ctx.Err() != nil:
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.print()
}

func (w *lagWatch) add(delay time.Duration) {
	if w.messages == 0 {
		w.smallest, w.largest = delay, delay
	}
	w.messages++
	w.sum += delay.Seconds()
	w.smallest, w.largest = min(w.smallest, delay), max(w.largest, delay)
}

// lagStats is a line of --stats.
type lagStats struct {
	Messages  int    `json:"messages"`
	Malformed uint64 `json:"malformed"`
	Missed    uint64 `json:"missed"`

	*lagDelays // nil without messages
}

// lagDelays holds delays in seconds.
type lagDelays struct {
	Smallest float64 `json:"smallest"`
	Mean     float64 `json:"mean"`
	Largest  float64 `json:"largest"`
}

// print prints a line and resets the sums.
func (w *lagWatch) print() error {
	s := w.sub.Stats()
	line := lagStats{Messages: w.messages, Malformed: s.Malformed - w.before.Malformed, Missed: s.Missed - w.before.Missed}
	if w.messages > 0 {
		line.lagDelays = &lagDelays{Smallest: w.smallest.Seconds(), Mean: w.sum / float64(w.messages), Largest: w.largest.Seconds()}
	}
	w.messages, w.sum, w.smallest, w.largest, w.before = 0, 0, 0, 0, s
	if w.json {
		if err := json.NewEncoder(w.out).Encode(line); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w.out, "%d messages, %d malformed, %d missed", line.Messages, line.Malformed, line.Missed)
		if d := line.lagDelays; d != nil {
			fmt.Fprintf(w.out, ", delay %.6f s smallest, %.6f s mean, %.6f s largest", d.Smallest, d.Mean, d.Largest)
		}
		fmt.Fprintln(w.out)
	}
	return w.out.Flush()
}
