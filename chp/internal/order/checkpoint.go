package order

import (
	"context"
	"log/slog"
	"time"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/state"
)

// RunCheckpoints writes a checkpoint whenever the log has grown enough, or is short of space,
// until the context ends. After a failure it calls failed and tries again, but spends at most a
// tenth of the time on that: with a small map that is each second, so that the log does not take
// the space that comes back before the checkpoint does. The end of failures is logged at their level.
func (q *Sequencer) RunCheckpoints(ctx context.Context, log *slog.Logger, failed func(error)) {
	level := slog.LevelInfo
	look := time.NewTicker(checkpointLook)
	defer look.Stop()
	var next time.Time // not before, after a failure
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		var size int64
		q.Between(func(now *Moment) { size = int64(now.State.Store.LiveBytes()) })
		begun := time.Now()
		if begun.Before(next) || !q.journal.Due(max(checkpointBytes, size)) {
			continue
		}
		if err := q.Checkpoint(ctx); err != nil {
			if ctx.Err() == nil {
				failed(err)
				level = slog.LevelWarn
			}
			next = time.Now().Add(min(10*time.Since(begun), checkpointWait))
			continue
		}
		log.Log(ctx, level, "checkpoint", "keys", q.live.Now().Store.Len(), "took", time.Since(begun).Round(time.Millisecond))
		level = slog.LevelInfo
	}
}

// Checkpoint writes the current map to the journal. It replaces all earlier batches.
func (q *Sequencer) Checkpoint(ctx context.Context) error {
	q.saving.Lock()
	defer q.saving.Unlock()
	return q.journal.Save(ctx, func() (*state.Image, journal.Index) {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.state.Image(), q.linked
	})
}
