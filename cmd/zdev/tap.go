package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"clustermap/internal/command"
	"clustermap/internal/httpside"
	"clustermap/internal/visible"
	"clustermap/patterns/espresso"

	"github.com/spf13/cobra"
)

// printing holds the flags of commands that print events.
type printing struct {
	asJSON, quiet bool
	topics        []string
	from          string
}

func (p *printing) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&p.asJSON, "json", false, "print JSON objects, one per line")
	flags.BoolVar(&p.quiet, "quiet", false, "print nothing")
	flags.StringArrayVar(&p.topics, "topic", nil, "only events whose topic begins with this `prefix`; repeat it for several")
	flags.StringVar(&p.from, "from", "", "only events from one side: frontend, backend")
	command.Complete(cmd, "from", "frontend", "backend")
}

// filter returns the filter of --topic and --from.
func (p *printing) filter() (f espresso.Filter, err error) {
	f.Topics = p.topics
	switch p.from {
	case "":
	case "frontend":
		f.From = espresso.DirectionFromFrontend
	case "backend":
		f.From = espresso.DirectionFromBackend
	default:
		return f, command.Fail(command.ExitUsage, "--from %q: give frontend or backend", p.from)
	}
	return f, nil
}

func (p *printing) format() func([]byte, *espresso.Event) []byte {
	if p.asJSON {
		return appendEventJSON
	}
	return appendEventText
}

const eventHelp = `A line has the time, the side that the message comes from, its size in bytes and its
frames; or subscribe or unsubscribe and the topic. With reqrep, the frames in brackets
are the envelope: identities and an empty frame. Special characters are quoted, and only
the first 64 bytes of a frame are shown. With --json each line is an object with time, op
(message, subscribe, unsubscribe, lost), from, topic, size, envelope (number of frames),
and the complete frames: in frames or, if they are not all UTF-8, in frames_base64.

The topic is the first frame after the envelope.`

func newTap() *cobra.Command {
	// By default the publisher's side is connected, as in the guide.
	b := between{kind: string(pubsub)}
	var p printing
	var record string
	queue := command.Bytes(espresso.DefaultQueue)
	cmd := &cobra.Command{
		Use:   "tap",
		Short: "Show or record the messages between two endpoints (Espresso)",
		Long: `Forwards messages like zdev proxy, and prints each message and subscription, or records
them for zdev replay.

` + attachHelp + `
Without a prefix, the frontend of pubsub and the backend of reqrep and pipeline are
connected, and the other side is bound.

` + eventHelp + `

Forwarding never waits for the output or the file. Messages that arrive faster than they
can be printed or recorded wait in a queue (--queue). When the queue is full, messages are
still forwarded, and a line or a record has the number of missing ones. If the output or
the file cannot be written, the tap continues without it, and the exit code is 1. The tap
ends when the reader of its output has gone.

With --record nothing is printed, unless --json or --print is given too. At the end it
prints on standard error how many messages were recorded and lost.`,
		Example: `  zdev tap --frontend tcp://127.0.0.1:6000 --backend tcp://*:6001
  zdev tap --frontend tcp://127.0.0.1:6000 --backend tcp://*:6001 \
    --record flow.espresso
  zdev tap --kind reqrep --frontend tcp://*:5559 \
    --backend tcp://127.0.0.1:5560 --json`,
	}
	b.register(cmd)
	p.register(cmd)
	var also bool
	flags := cmd.Flags()
	flags.StringVar(&record, "record", "", "`file` to record to; it must not exist")
	flags.BoolVar(&also, "print", false, "print while recording")
	flags.Var(&queue, "queue", "size of the queue of messages to print or record, such as 64MiB")
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		b.frontend.bind, b.backend.bind = b.kind != string(pubsub), b.kind == string(pubsub)
		if queue <= 0 {
			return command.Fail(command.ExitUsage, "--queue %v: give from 1KiB to 2047MiB", &queue)
		}
		filter, err := p.filter()
		if err != nil {
			return err
		}
		front, back, err := b.open(ctx, cmd)
		if err != nil {
			return err
		}
		t, err := espresso.NewTap(front, back, espresso.Options{Queue: int(queue)})
		if err != nil {
			return errors.Join(command.Fail(command.ExitUsage, "--queue %v: give from 1KiB to 2047MiB", &queue), closeBoth(front, back))
		}
		run := tapping{tap: t, filter: filter, stderr: cmd.ErrOrStderr()}
		if record != "" {
			err = run.record(record)
		}
		if err == nil && !p.quiet && (record == "" || p.asJSON || also) {
			run.print(cmd.OutOrStdout(), p.format())
		}
		if err == nil {
			var side *httpside.Side
			if side, err = b.ready(ctx, cmd, front, back); err == nil {
				err = run.run(ctx, cmd.OutOrStdout())
			}
			side.Close()
		}
		return errors.Join(err, closeBoth(front, back))
	})
	return cmd
}

// tapping is a tap with its observers.
type tapping struct {
	tap    *espresso.Tap
	filter espresso.Filter
	stderr io.Writer

	sinks []func(ctx context.Context) error
}

// record adds an observer that records to a new file.
func (t *tapping) record(name string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return command.Fail(command.ExitRefused, "%s already exists; choose another file with --record", name)
	}
	if err != nil {
		return command.Fail(command.ExitRefused, "cannot record: %w", err)
	}
	w, err := espresso.NewWriter(file, t.tap.Ends())
	if err != nil {
		return command.Fail(command.ExitRefused, "cannot record: %w", err)
	}
	o := t.tap.Observe(t.filter)
	t.sinks = append(t.sinks, func(ctx context.Context) error {
		err := errors.Join(o.Record(ctx, w), file.Close())
		o.Close()
		if err != nil {
			err = command.Fail(command.ExitRefused, "recording failed: %w", err)
		}
		messages, subscriptions := w.Written()
		also := ""
		if subscriptions > 0 {
			also = fmt.Sprintf(" and %d subscribe or unsubscribe", subscriptions)
		}
		t.say("recorded %d messages%s, lost %d", messages, also, o.Stats().Lost)
		return err
	})
	return nil
}

// print adds an observer that prints lines on standard output.
func (t *tapping) print(out io.Writer, format func([]byte, *espresso.Event) []byte) {
	o := t.tap.Observe(t.filter)
	t.sinks = append(t.sinks, func(ctx context.Context) error {
		defer o.Close()
		err := printEvents(ctx, o, bufio.NewWriterSize(out, 64<<10), format)
		if err != nil && !errors.Is(err, syscall.EPIPE) {
			err = command.Fail(command.ExitRefused, "cannot write the output: %w", err)
		}
		return err
	})
}

func (t *tapping) say(format string, a ...any) {
	command.Say(t.stderr, "zdev: "+visible.String(fmt.Sprintf(format, a...))+"\n")
}

// drainTime is how long a tap waits at its end for the output and the recording.
const drainTime = 2 * time.Second

// run forwards until the context ends or the reader of the output has gone. A write error
// ends only that observer; run returns it at the end.
func (t *tapping) run(ctx context.Context, out io.Writer) error {
	reading, stop := command.UntilHangup(ctx, out)
	defer stop()
	flow, end := context.WithCancel(reading)
	defer end()
	ended := make(chan error, len(t.sinks))
	for _, sink := range t.sinks {
		go func() {
			// The observers end with the tap, not with ctx.
			err := sink(context.WithoutCancel(ctx))
			if errors.Is(err, syscall.EPIPE) {
				end()
				err = nil
			} else if err != nil {
				t.say("%v; forwarding continues", err)
			}
			ended <- err
		}()
	}
	err := t.tap.Run(flow)
	if flow.Err() != nil {
		err = nil // a signal
	}
	// The output may be a pipe without a reader.
	limit := time.After(drainTime)
	for range t.sinks {
		select {
		case failed := <-ended:
			err = errors.Join(err, failed)
		case <-limit:
			t.say("nothing reads the output; the rest of it is lost")
			return err
		}
	}
	return err
}

// printEvents prints events until there are no more. It flushes only when no event is
// waiting, so that a single event is written at once and many events in large writes.
func printEvents(ctx context.Context, o *espresso.Observer, out *bufio.Writer, format func([]byte, *espresso.Event) []byte) error {
	var e espresso.Event
	for {
		err := o.Next(ctx, &e)
		if err == io.EOF {
			return out.Flush()
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(format(out.AvailableBuffer(), &e)); err != nil {
			return err
		}
		if !o.Buffered() {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}
