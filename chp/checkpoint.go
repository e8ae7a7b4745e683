package chp

import (
	"context"
	"time"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/state"
)

const (
	// checkpointBytes is the least growth of the log, in bytes, that causes a
	// checkpoint. With a larger map the log grows by the size of the map first. That
	// bounds both the cost of checkpoints and the log that a restart replays.
	checkpointBytes = 64 << 20

	// checkpointLook is the interval at which the size of the log is checked.
	checkpointLook = time.Second

	// checkpointWait is the longest time after which a checkpoint that has failed is tried
	// again, in looks: there may be space on the disk again.
	checkpointWait = 60
)

// runCheckpoints writes a checkpoint whenever the log has grown enough, or is short of space,
// until the context ends. After a failure it tries again soon, and then later and later.
func (s *Server) runCheckpoints(ctx context.Context) {
	q := &s.sequencer
	if s.opts.Log == nil {
		return
	}
	look := time.NewTicker(checkpointLook)
	defer look.Stop()
	wait, skip := 1, 0 // looks
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if skip > 0 {
			skip--
			continue
		}
		if !q.journal.Due(max(checkpointBytes, q.mapBytes())) {
			continue
		}
		begun := time.Now()
		if err := q.checkpoint(ctx); err != nil {
			if ctx.Err() == nil {
				s.log.Error("checkpoint failed", "error", err)
			}
			skip, wait = wait, min(2*wait, checkpointWait)
			continue
		}
		wait = 1
		s.log.Info("checkpoint", "keys", s.Len(), "took", time.Since(begun).Round(time.Millisecond))
	}
}

// checkpoint writes the current map to the journal. It replaces all earlier batches.
func (q *sequencer) checkpoint(ctx context.Context) error {
	return q.journal.Save(ctx, func() (*state.Image, journal.Index) {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.state.Image(), q.linked
	})
}
