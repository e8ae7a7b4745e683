package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/chp/durable"

	"github.com/spf13/cobra"
)

// syncHelp describes what each policy can lose. It is too long for the flag's text.
const syncHelp = `With --data the map is stored in a directory, and a restart restores the keys,
sequences and times to live. --sync selects when updates are flushed to disk, and so
which ones are lost if the machine stops:
  always       none that a client has seen; updates are published after the flush
  interval=D   the updates of the last D (100ms by default) and of one flush
  never        those that the system had not written, usually the last 30 seconds
If only the process is killed, always loses none, and the others lose at most the
last milliseconds of updates, which were not yet passed to the system.`

// openData opens the log of --data. It returns nil without the flag.
func (f *serveFlags) openData(ctx context.Context) (commit.Log, error) {
	if f.data == "" {
		return nil, nil
	}
	log, err := durable.Open(f.data, durable.Options{})
	if err != nil {
		return nil, f.dataError(err)
	}
	return &interruptibleLog{log, ctx}, nil
}

// interruptibleLog is a log whose replay ends with a context.
type interruptibleLog struct {
	commit.Log
	ctx context.Context
}

func (l *interruptibleLog) Replay(entry func(commit.Entry) error) (commit.Replayed, error) {
	return l.Log.Replay(func(e commit.Entry) error {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		return entry(e)
	})
}

// replaying returns what shows on standard error how far the replay has come.
func (f *serveFlags) replaying(cmd *cobra.Command) func(chp.ReplayProgress) {
	w := cmd.ErrOrStderr()
	live := isTerminal(w)
	return func(p chp.ReplayProgress) {
		rate := float64(p.Updates) / max(p.Elapsed.Seconds(), 1e-3)
		line := fmt.Sprintf("chp: replayed %s (%s, %.1f million a second) from %s", count(p.Updates, "update"), p.Elapsed.Round(time.Millisecond), rate/1e6, f.data)
		switch {
		case !p.Done && live:
			fmt.Fprintf(w, "\r%s", line)
		case p.Done && p.Entries > 0:
			if live {
				fmt.Fprint(w, "\r")
			}
			fmt.Fprintln(w, line)
		}
		if p.Done && p.Torn != nil {
			fmt.Fprintf(w, "chp: %s: removed %s of an unfinished write\n", p.Torn.File, count(uint64(min(p.Torn.Bytes, math.MaxInt64)), "byte"))
		}
	}
}

// count returns "1 key" or "2 keys".
func count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// dataError adds advice to the error of a directory that cannot be used.
func (f *serveFlags) dataError(err error) error {
	var corrupt *commit.CorruptError
	switch {
	case errors.Is(err, commit.ErrLocked):
		return fail(exitRefused, "--data %s: another server has it open", f.data)
	case errors.Is(err, commit.ErrReadOnly), errors.Is(err, fs.ErrPermission):
		return fail(exitRefused, "--data %s: cannot write: %s", f.data, plain(err))
	case errors.Is(err, commit.ErrFull):
		return fail(exitRefused, "--data %s: the disk is full", f.data)
	case errors.As(err, &corrupt):
		return fail(exitRefused, "--data %s is damaged: %s; chp fsck reports what is readable", f.data, plain(err))
	}
	return fail(exitRefused, "--data %s: %s", f.data, plain(err))
}
