package chp

import (
	"context"
	"fmt"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

const (
	// checkpointBytes is the least growth of the log, in bytes, that causes a
	// checkpoint. With a larger map the log grows by the size of the map first. That
	// bounds both the cost of checkpoints and the log that a restart replays.
	checkpointBytes = 64 << 20

	// checkpointEntry is the approximate size of a checkpoint's entries, in bytes.
	checkpointEntry = 256 << 10

	// checkpointLook is the interval at which the size of the log is checked.
	checkpointLook = time.Second
)

// runCheckpoints writes a checkpoint whenever the log has grown enough, until the
// context ends. After a failure it tries again when the log has grown by as much again.
func (s *Server) runCheckpoints(ctx context.Context) {
	q := &s.sequencer
	if !q.disk.on() {
		return
	}
	look := time.NewTicker(checkpointLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if q.disk.grown.Load() < max(checkpointBytes, q.mapBytes()) {
			continue
		}
		begun := time.Now()
		if err := q.checkpoint(ctx); err != nil {
			if ctx.Err() == nil {
				s.log.Error("checkpoint failed", "error", err)
			}
			continue
		}
		s.log.Info("checkpoint", "keys", s.Len(), "took", time.Since(begun).Round(time.Millisecond))
	}
}

// checkpoint writes the current map to the log. It replaces all earlier entries.
func (q *sequencer) checkpoint(ctx context.Context) error {
	q.saving.Lock()
	defer q.saving.Unlock()
	q.mu.Lock()
	w := wholeMap{q.store.Cut(), q.disk.index, q.last.Load(), q.reigns.history(), q.mapID, q.origins.portions(), &q.deadlines}
	q.disk.grown.Store(0)
	q.mu.Unlock()
	return q.save(ctx, &w)
}

// wholeMap is the content of a checkpoint.
type wholeMap struct {
	cut       *store.Cut
	index     uint64 // of the last entry that the checkpoint replaces
	sequence  int64
	reigns    []reign // oldest first
	mapID     [mapIDSize]byte
	origins   [][]byte
	deadlines *deadlines
}

// save writes a checkpoint and releases its cut. saving must be held.
func (q *sequencer) save(ctx context.Context, m *wholeMap) error {
	c, index, newest := m.cut, m.index, m.reigns[len(m.reigns)-1]
	defer c.Release()
	if err := q.disk.group.Flush(ctx); err != nil {
		return err
	}
	w, err := q.disk.log.Checkpoint(index, uint64(m.sequence))
	if err != nil {
		return err
	}
	defer w.Abort()
	e := commit.Entry{Epoch: newest.id, First: uint64(newest.last), Kind: commit.KindRecords, Time: time.Now().UnixNano()}
	state := func(kind uint32, records []byte) {
		if err == nil {
			err = w.Append(commit.Entry{Epoch: newest.id, Kind: kind, Time: e.Time, Records: records})
		}
	}
	state(kindMapID, m.mapID[:])
	state(kindReigns, appendReigns(nil, m.reigns))
	for _, portion := range m.origins {
		state(kindOrigins, portion)
	}
	if err != nil {
		return fmt.Errorf("chp: writing a checkpoint: %w", err)
	}
	flush := func() {
		if e.Count > 0 && err == nil {
			err = w.Append(e)
		}
		e.Count, e.Records, e.Time = 0, e.Records[:0], time.Now().UnixNano()
	}
	c.Records(func(r kvmsg.Record) bool {
		if len(e.Records)+len(r)+kvmsg.AgedGrowth > checkpointEntry {
			flush()
		}
		// The time to live counts from the entry's time.
		e.Records = kvmsg.AppendAged(e.Records, r, m.deadlines.remaining(r))
		e.Count++
		return err == nil && ctx.Err() == nil
	})
	flush()
	switch {
	case err != nil:
		return fmt.Errorf("chp: writing a checkpoint: %w", err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return w.Commit()
}
