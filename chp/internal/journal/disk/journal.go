package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/retain"
	"clustermap/chp/internal/state"
	"clustermap/internal/mutate"
	"clustermap/internal/store"
)

// Options are the settings of a journal.
type Options struct {
	Log    commit.Log // not replayed yet; the journal closes it
	Policy commit.Policy
	// Changed is called when more batches are committed, in the goroutine that flushes. It
	// must not wait for the journal.
	Changed func()
	// Window gets the updates that follow the checkpoint; nil if nobody wants them.
	Window *retain.Window
	// Replayed is called while the log is replayed, with the numbers of updates so far and of
	// their bytes; nil means that nobody wants to know.
	Replayed func(updates, bytes uint64)
}

// Journal appends batches to a log on disk. It is a [journal.Journal].
type Journal struct {
	log     commit.Log
	group   *commit.Group
	always  bool // a batch is committed when it is flushed
	changed func()

	durable atomic.Uint64 // index up to which all is flushed
	grown   atomic.Int64

	// Guarded by the owner's mutex.
	parts []commit.Lent // scratch
	head  []byte        // scratch
}

var _ journal.Journal = (*Journal)(nil)

// start begins to append to a log that was replayed.
func (j *Journal) start(o *Options, done *commit.Replayed) {
	j.always, j.changed = o.Policy.IsAlways(), o.Changed
	j.durable.Store(done.Last)
	j.group = commit.NewGroup(o.Log, commit.GroupOptions{Policy: o.Policy, OnDurable: j.flushed})
	j.log.Commit(done.Last) // Replay has flushed all, and clients are about to see it
}

// flushed records that the log has everything up to an index on its disk.
func (j *Journal) flushed(index uint64) {
	j.durable.Store(index)
	if j.always && j.changed != nil {
		j.changed()
	}
}

// AtOnce returns false: the log may refuse a batch, and nobody may see one that a restart
// does not bring back.
func (j *Journal) AtOnce() bool { return false }

// Append appends a batch as an entry. The log gets the bytes where they are.
func (j *Journal) Append(h state.Head, pieces []store.Piece, _ int) journal.Index {
	j.parts = j.parts[:0]
	size := 0
	for _, p := range pieces {
		p.Segment.Retain()
		j.parts = append(j.parts, commit.Lent{Bytes: p.Wire(), Owner: p.Segment})
		size += p.Size()
	}
	var e commit.Entry
	e, j.head = Compose(&h, j.head)
	index, err := j.group.Lend(e, j.parts...)
	if err != nil {
		for _, p := range pieces {
			p.Segment.Release()
		}
		return journal.Never
	}
	j.grown.Add(int64(size))
	return journal.Index(index)
}

// Committed reports whether the entry of a batch is on the disk or, unless the policy is
// Always, in the log.
func (j *Journal) Committed(i journal.Index, _ int64) bool {
	return i != journal.Never && (!j.always || uint64(i) <= j.durable.Load()) || mutate.PublishEarly
}

// Room waits until the log can take another batch without waiting.
func (j *Journal) Room(ctx context.Context) error { return j.group.Room(ctx) }

// Stored waits until what was appended is flushed, with the policy Always.
func (j *Journal) Stored(ctx context.Context) error {
	if !j.always {
		return nil
	}
	return j.group.Flush(ctx)
}

// Restored does nothing: Save has taken the place of what was before.
func (j *Journal) Restored() {}

// Due reports whether updates of at least so many bytes were appended since the last
// checkpoint, or the log is short of space and a checkpoint gives some back.
func (j *Journal) Due(least int64) bool {
	grown := j.grown.Load()
	if grown >= least {
		return true
	}
	space, ok := j.log.(commit.Reserver)
	return ok && grown >= shortBytes && space.Short()
}

// Failed returns a channel that is closed when the log has failed.
func (j *Journal) Failed() <-chan struct{} { return j.group.Failed() }

// Close writes and flushes all appended entries and closes the log. It returns the error with
// which the log has failed, if any.
func (j *Journal) Close() error {
	group := j.group.Close()
	err := cmp.Or(j.log.Close(), group) // a log that has failed gives its error to both
	if err != nil && !errors.Is(err, commit.ErrClosed) {
		return fmt.Errorf("chp: the log failed: %w", err)
	}
	return nil
}

// Save writes a checkpoint, which replaces the entries up to an index.
func (j *Journal) Save(ctx context.Context, cut func() (*state.Image, journal.Index)) error {
	c, index := cut()
	defer c.Release()
	grown := j.grown.Load()
	if err := j.group.Flush(ctx); err != nil {
		return err
	}
	return j.checkpoint(ctx, c, uint64(index), grown)
}

// checkpoint writes a map as a checkpoint at an index, up to which so many bytes were appended.
func (j *Journal) checkpoint(ctx context.Context, c *state.Image, index uint64, grown int64) error {
	w, err := j.log.Checkpoint(index, uint64(c.Sequence))
	if err == nil {
		err = Write(ctx, c, w)
	}
	if err == nil {
		j.grown.Add(-grown)
	}
	return err
}

// Write writes a map to a checkpoint, and ends it with Commit or Abort.
func Write(ctx context.Context, c *state.Image, to commit.Checkpoint) error {
	defer to.Abort()
	for e := range Sections(c) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := to.Append(e); err != nil {
			return fmt.Errorf("chp: writing a checkpoint: %w", err)
		}
	}
	return to.Commit()
}
