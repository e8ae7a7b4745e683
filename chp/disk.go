package chp

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/store"
)

// disk keeps the updates of a server in a log, as a rule one on a disk
// ([ServerOptions.Log]). The zero disk keeps nothing.
//
// An entry of the log is a batch of updates as they are published. So the log can be
// replayed as if it came from a server.
type disk struct {
	log   commit.Log
	group *commit.Group

	// Guarded by the sequencer's mutex.
	index uint64   // of the last entry
	parts [][]byte // scratch

	grown atomic.Int64 // bytes appended since the last checkpoint began
}

// on says whether there is a log.
func (d *disk) on() bool { return d.group != nil }

// append leaves the pieces of a batch to the log, and returns the index of their
// entry. The sequencer's mutex must be held; nothing waits, see room.
//
// Once the log has failed it does nothing: the server is about to end, for the same
// reason.
func (d *disk) append(h batchHead, pieces []store.Piece) uint64 {
	d.parts = d.parts[:0]
	size := 0
	for _, p := range pieces {
		d.parts = append(d.parts, p.Wire())
		size += p.Size()
	}
	index, err := d.group.AppendParts(commit.Entry{
		Epoch: h.epoch, First: uint64(h.first), Count: h.count, Kind: commit.KindRecords, Time: time.Now().UnixNano(),
	}, d.parts...)
	if err == nil {
		d.index = index
		d.grown.Add(int64(size))
	}
	return d.index
}

// room waits until the log takes another batch without delay.
func (d *disk) room(ctx context.Context) error {
	if !d.on() {
		return nil
	}
	return d.group.Room(ctx)
}

// failed returns a channel that is closed when the log has failed.
func (d *disk) failed() <-chan struct{} {
	if !d.on() {
		return nil
	}
	return d.group.Failed()
}

// close writes and flushes what was appended, and closes the log. It returns why
// the log has failed, if it has.
func (d *disk) close() error {
	if !d.on() {
		return nil
	}
	err := errors.Join(d.group.Close(), d.log.Close())
	if err != nil && !errors.Is(err, commit.ErrClosed) {
		return fmt.Errorf("chp: the log failed: %w", err)
	}
	return nil
}
