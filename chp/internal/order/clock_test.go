package order

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/state"
)

// beats counts heartbeats.
type beats struct {
	nobody
	n int
}

func (b *beats) Heartbeat(int64) { b.n++ }

// Beat is called with each heartbeat, also while there is nothing else to do: otherwise a quiet
// server would never log what it has left out.
func TestBeatIsCalledWithEachHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		published := new(beats)
		q := new(Sequencer)
		q.Init(Options{Live: new(live.Map), State: state.New(1), Journal: journal.Memory{}, Publisher: published})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		called := 0
		q.RunClock(ctx, Clock{
			Heartbeat: time.Second, Pace: NewPacer(1, func() float64 { return 0 }), Log: slog.New(slog.DiscardHandler),
			Beat: func(time.Time) { called++ },
		})
		q.Shut()
		if published.n < 10 || called != published.n {
			t.Errorf("called %d times at %d heartbeats in 10 s", called, published.n)
		}
	})
}
