package chp

import (
	"context"
	"fmt"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/state"
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
	c, index := q.state.Image(), q.disk.index
	if !q.held.empty() {
		index = q.held.oldest().index - 1
	}
	q.disk.grown.Store(0)
	q.mu.Unlock()
	return q.save(ctx, c, index)
}

// save writes a checkpoint that replaces the entries up to index, and releases its cut.
// saving must be held.
func (q *sequencer) save(ctx context.Context, c *state.Image, index uint64) error {
	defer c.Release()
	if err := q.disk.group.Flush(ctx); err != nil {
		return err
	}
	w, err := q.disk.log.Checkpoint(index, uint64(c.Sequence))
	if err != nil {
		return err
	}
	return saveImage(ctx, c, w)
}

// saveImage writes the state to a checkpoint, and ends it with Commit or Abort.
func saveImage(ctx context.Context, c *state.Image, to commit.Checkpoint) error {
	defer to.Abort()
	var newest state.Reign
	if n := len(c.Terms); n > 0 {
		newest = c.Terms[n-1]
	}
	for p := range c.Sections(checkpointEntry) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The times to live count from the entry's time.
		e := commit.Entry{Epoch: newest.ID, Kind: uint32(p.Kind), Count: p.Count, Time: time.Now().UnixNano(), Records: p.Body}
		if p.Kind == state.KindRecords {
			e.First = uint64(newest.Last)
		}
		if err := to.Append(e); err != nil {
			return fmt.Errorf("chp: writing a checkpoint: %w", err)
		}
	}
	return to.Commit()
}
