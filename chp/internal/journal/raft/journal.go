package raft

import (
	"context"
	"sync/atomic"

	"clustermap/chp/commit"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/journal/disk"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/internal/store"
)

// Journal proposes batches. It is a [journal.Journal]. Attach gives it its node, before anything is appended.
//
// Each batch is one entry: of 64 to 128 KiB while clients send a stream, since that is what their connections deliver
// at a time, and small when they do not.
type Journal struct {
	node Node

	grown atomic.Int64

	// Guarded by the owner's mutex.
	term  uint64   // in which it proposes; 0 if it does not
	head  []byte   // scratch
	parts [][]byte // scratch
}

var _ journal.Journal = (*Journal)(nil)

// Attach sets the node.
func (j *Journal) Attach(n Node) { j.node = n }

// Lead begins to propose in a term, and ends that if it is 0. It is called like Append.
func (j *Journal) Lead(term uint64) { j.term = term }

// Name proposes the identity of a map, which is a new one, or where its sequences go on: see disk.Named.
func (j *Journal) Name(id [ledger.MapIDSize]byte, after int64) (proposed bool) {
	e := disk.Named(id, after)
	if _, err := j.node.Propose(j.term, &e); err != nil {
		j.term = 0 // the next leader does it
		return false
	}
	return true
}

// AtOnce returns false: a majority has to have a batch first.
func (j *Journal) AtOnce() bool { return false }

// Append proposes a batch. The index is journal.Never if the node does not lead any more: then that
// batch is lost, and nothing is appended until Lead.
func (j *Journal) Append(h state.Head, pieces []store.Piece, _ int) journal.Index {
	if j.term == 0 {
		return journal.Never
	}
	var e commit.Entry
	e, j.head = disk.Compose(&h, j.head)
	j.parts = j.parts[:0]
	size := 0
	for _, p := range pieces {
		j.parts = append(j.parts, p.Wire())
		size += p.Size()
	}
	e.Parts = j.parts
	index, err := j.node.Propose(j.term, &e)
	clear(j.parts)
	if err != nil {
		j.term = 0
		return journal.Never
	}
	j.grown.Add(int64(size))
	return journal.Index(index)
}

// Committed returns false: what is committed, the node tells the owner.
func (j *Journal) Committed(journal.Index, int64) bool { return false }

// Grow counts the bytes of an entry that another node has proposed.
func (j *Journal) Grow(bytes int) { j.grown.Add(int64(bytes)) }

// Room waits until the node can take another batch.
func (j *Journal) Room(ctx context.Context) error { return j.node.Room(ctx) }

// Stored returns nil: what is in the map is stored.
func (j *Journal) Stored(context.Context) error { return nil }

// Save has the node save the map: it asks its owner for the image, at a place of the log that it knows.
func (j *Journal) Save(ctx context.Context, _ func() (*state.Image, journal.Index)) error {
	grown := j.grown.Load()
	err := j.node.Save(ctx)
	if err == nil {
		j.grown.Add(-grown)
	}
	return err
}

// Restored does nothing: a node that gives its owner another map has stored it.
func (j *Journal) Restored() {}

// Due reports whether updates of at least so many bytes were appended since the last checkpoint.
func (j *Journal) Due(least int64) bool { return j.grown.Load() >= least }

// Failed returns a channel that is closed when the node has failed.
func (j *Journal) Failed() <-chan struct{} { return j.node.Failed() }

// Close closes the node.
func (j *Journal) Close() error {
	if j.node == nil {
		return nil
	}
	return j.node.Close()
}
