package chp

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"testing"

	"clustermap/chp/commit"
)

// stoppingLog is a log whose disk is full after some entries, in the log or in a checkpoint.
type stoppingLog struct {
	commit.Log
	room int
}

func (l *stoppingLog) take(n int) error {
	if l.room -= n; l.room < 0 {
		return commit.ErrFull
	}
	return nil
}

func (l *stoppingLog) Append(e ...commit.Entry) error {
	if err := l.take(len(e)); err != nil {
		return err
	}
	return l.Log.Append(e...)
}

func (l *stoppingLog) Checkpoint(index, sequence uint64) (commit.Checkpoint, error) {
	c, err := l.Log.Checkpoint(index, sequence)
	return &stoppingCheckpoint{c, l}, err
}

type stoppingCheckpoint struct {
	commit.Checkpoint
	log *stoppingLog
}

func (c *stoppingCheckpoint) Append(e commit.Entry) error {
	if err := c.log.take(1); err != nil {
		return err
	}
	return c.Checkpoint.Append(e)
}

// A start that stops while it stores the keys of Preload leaves a log without a map: the next
// start loads them all.
func TestPreloadIsStoredAsAWhole(t *testing.T) {
	t.Parallel()
	const keys = 3000
	load := iter.Seq2[Entry, error](func(yield func(Entry, error) bool) {
		for i := range keys {
			if !yield(Entry{Key: fmt.Appendf(nil, "/k/%04d", i), Value: bytes.Repeat([]byte("v"), 400)}, nil) {
				return
			}
		}
	})
	stopped := 0
	for room := 0; ; room++ {
		dir := t.TempDir()
		s, err := NewServer(ServerOptions{Log: &stoppingLog{openLog(t, dir), room}, Preload: load, Logger: quiet()})
		if err == nil {
			must(t, s.Close())
			break
		}
		if stopped++; !errors.Is(err, commit.ErrFull) {
			t.Errorf("after %d entries: %v", room, err)
		}
		s, err = NewServer(ServerOptions{Log: openLog(t, dir), Preload: load, Logger: quiet()})
		must(t, err)
		if n := s.Len(); n != keys {
			t.Errorf("stopped after %d entries: the next start has %d of %d keys", room, n, keys)
		}
		must(t, s.Close())
	}
	if stopped < 5 {
		t.Errorf("stopped at %d places: the test has tested too little", stopped)
	}
}
