package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"clustermap/chp"
	"clustermap/chp/cluster"
	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

// syncHelp describes the policies of --sync. It is too long for the flag's text.
const syncHelp = `With --data the map is stored in a directory, and a restart restores the keys,
sequences and times to live. --sync selects when updates are flushed to disk, and so
which ones are lost if the machine stops:
  always       none that a client has seen; updates are published after the flush
  interval=D   the updates of the last D (100ms by default) and of one flush
  never        those that the system had not written, usually the last 30 seconds
If only the process is killed, always loses none, and the others lose at most the
last milliseconds of updates, which were not yet passed to the system.`

// openData opens the log of --data. Without the flag it returns nil. synced, if not nil, gets how
// long each flush took.
func (f *serveFlags) openData(ctx context.Context, synced func(time.Duration)) (commit.Log, error) {
	if f.data == "" {
		return nil, nil
	}
	if info, err := os.Stat(f.data); err == nil && !info.IsDir() {
		return nil, fail(exitRefused, "--data %s: it is a file, and the data of a server is in a directory", f.data)
	}
	if _, node, ok, _ := cluster.DirMember(f.data); ok {
		return nil, fail(exitRefused, "--data %s: it is the directory of node %d of a cluster; start it with --cluster or --join, or restore a backup of it (chp backup, chp restore)", f.data, node.Node)
	}
	log, err := durable.Open(f.data, durable.Options{})
	if err != nil {
		return nil, f.dataError(err)
	}
	return &servedLog{log, ctx, synced}, nil
}

// servedLog is a log whose replay ends with a context, and whose flushes are timed.
type servedLog struct {
	*durable.Log
	ctx    context.Context
	synced func(time.Duration)
}

func (l *servedLog) Sync() error {
	if l.synced == nil {
		return l.Log.Sync()
	}
	began := time.Now()
	err := l.Log.Sync()
	l.synced(time.Since(began))
	return err
}

func (l *servedLog) Replay(entry func(commit.Entry) error) (commit.Replayed, error) {
	return l.Log.Replay(func(e commit.Entry) error {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		return entry(e)
	})
}

// replaying returns a function that shows the progress of the replay on standard error.
func (f *serveFlags) replaying(cmd *cobra.Command) func(chp.ReplayProgress) {
	w := cmd.ErrOrStderr()
	live := command.Terminal(w) != nil
	if live {
		w = command.Exact(w) // with carriage returns
	}
	return func(p chp.ReplayProgress) {
		line := fmt.Sprintf("chp: replayed %s from %s in %s%s", command.Count(p.Updates, "update"), f.data, p.Elapsed.Round(time.Millisecond), replayRate(p))
		switch {
		case !p.Done && live:
			fmt.Fprintf(w, "\r%s", line)
		case p.Done && p.Entries > 0:
			if live {
				fmt.Fprint(w, "\r")
			}
			fmt.Fprintln(w, line)
		case p.Done: // perhaps the disk is not mounted
			fmt.Fprintf(w, "chp: the log in %s is new, and the map empty\n", f.data)
		}
		if p.Done && p.Torn != nil {
			fmt.Fprintf(w, "chp: %s: removed %s of an unfinished write\n", p.Torn.File, command.Count(p.Torn.Bytes, "byte"))
		}
	}
}

// replayRate returns the rate of a replay in parentheses, or "" if it took too short to
// tell.
func replayRate(p chp.ReplayProgress) string {
	rate := float64(p.Updates) / p.Elapsed.Seconds()
	switch {
	case p.Elapsed < time.Second:
		return ""
	case rate < 1e6:
		return fmt.Sprintf(" (%.0f a second)", rate)
	}
	return fmt.Sprintf(" (%.1f million a second)", rate/1e6)
}

// dataError adds advice to an error of the directory of --data.
func (f *serveFlags) dataError(err error) error {
	var corrupt *commit.CorruptError
	switch {
	case errors.Is(err, commit.ErrLocked):
		return fail(exitRefused, "--data %s: another server has it open", f.data)
	case errors.Is(err, commit.ErrFormat):
		return fail(exitRefused, "--data %s: %s", f.data, logText(err))
	case errors.Is(err, commit.ErrUnreadable):
		return fail(exitRefused, "--data %s: cannot read: %s", f.data, systemText(err))
	case errors.Is(err, commit.ErrReadOnly), errors.Is(err, fs.ErrPermission):
		return fail(exitRefused, "--data %s: cannot write: %s", f.data, systemText(err))
	case errors.Is(err, commit.ErrFull):
		return fail(exitRefused, "--data %s: the disk is full", f.data)
	case errors.As(err, &corrupt):
		return fail(exitRefused, "--data %s is damaged: %s; chp fsck reports what is readable", f.data, plain(err))
	}
	return fail(exitRefused, "--data %s: %s", f.data, plain(err))
}

// systemText returns the text of the system's error in an error of the log: what was done
// with which file, and why it failed.
func systemText(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Error()
	}
	return logText(err)
}
