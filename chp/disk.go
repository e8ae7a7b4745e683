package chp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// disk appends the updates of a server to a log, normally one on disk
// ([ServerOptions.Log]). The zero disk does nothing.
//
// An entry of the log is a batch of updates as they are published, so the log can be
// replayed like the messages of a server.
type disk struct {
	log   commit.Log
	group *commit.Group

	// Guarded by the sequencer's mutex.
	index uint64   // of the last entry
	parts [][]byte // scratch
	head  []byte   // scratch

	grown atomic.Int64 // bytes appended since the last checkpoint began
}

// Kinds of entries.
const (
	kindRecords = commit.KindRecords // updates

	// kindSent is updates of one client that numbers them: the client's identity, 16
	// bytes; the order number of the last update, 8 bytes big-endian; and the updates.
	kindSent = 1

	// kindOrigins is a portion of the origins (see ledger.Clients), kindMapID the
	// identity of the map, 16 bytes, and kindReigns the reigns of the map with the last
	// update of each (see state.AppendReigns). Checkpoints have all of them, before the updates.
	// A new log begins with kindMapID.
	kindOrigins = 2
	kindMapID   = 3
	kindReigns  = 4

	// kindNewest is the last kind. An entry of a later one makes a server refuse the log,
	// since it may change the map; so later versions write one only where they must.
	kindNewest = kindReigns
)

const notLogged = math.MaxUint64

const sentHeadSize = len(ledger.ID{}) + 8

// on reports whether there is a log.
func (d *disk) on() bool { return d.group != nil }

// append passes the pieces of a batch to the log and returns the index of their entry.
// The sequencer's mutex must be held. append does not wait: see room.
//
// After the log has failed, or when the disk is full, append returns notLogged, an index
// that never becomes durable; the server is about to end with the log's error.
func (d *disk) append(h state.Head, pieces []store.Piece) uint64 {
	d.parts = d.parts[:0]
	size := 0
	for _, p := range pieces {
		d.parts = append(d.parts, p.Wire())
		size += p.Size()
	}
	e := commit.Entry{Epoch: h.Reign, First: uint64(h.First), Count: h.Count, Kind: kindRecords, Time: timer.TimeOf(h.At).UnixNano()}
	if h.Counter > 0 {
		e.Kind = kindSent
		d.head = binary.BigEndian.AppendUint64(append(d.head[:0], h.Client[:]...), h.Counter)
		e.Records = d.head
	}
	index, err := d.group.AppendParts(e, d.parts...)
	if err != nil {
		return notLogged
	}
	d.index = index
	d.grown.Add(int64(size))
	return index
}

// appendMapID begins a log with the identity of the map.
func (d *disk) appendMapID(id [ledger.MapIDSize]byte) error {
	index, err := d.group.AppendParts(commit.Entry{Kind: kindMapID, Time: time.Now().UnixNano(), Records: id[:]})
	if err == nil {
		d.index = index
	}
	return err
}

// room waits until the log can accept another batch without waiting.
func (d *disk) room(ctx context.Context) error {
	if !d.on() {
		return nil
	}
	return d.group.Room(ctx)
}

// failed returns a channel that is closed when the log fails.
func (d *disk) failed() <-chan struct{} {
	if !d.on() {
		return nil
	}
	return d.group.Failed()
}

// close writes and flushes all appended entries and closes the log. It returns the
// error with which the log has failed, if any.
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
