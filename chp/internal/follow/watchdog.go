package follow

import (
	"context"
	"sync/atomic"
	"time"
)

// watchdog detects silence. It counts ticks without a message instead of comparing
// times: after a process was stopped for a while, one tick has passed, and its server
// is not considered dead. A message costs one atomic operation per batch and no reading
// of the clock.
type watchdog struct {
	heard  atomic.Uint32    // sources with a message since the last tick
	orders chan expectation // capacity 1; a new one replaces the last
}

// expectation is a limit on the silence of some connections (sources).
type expectation struct {
	sources uint32        // sources that count; with none it is a plain time limit
	limit   time.Duration // the longest silence; <= 0 means no limit

	// Sources that show that the server is alive though busy. While they hear messages, the
	// sources that count may be silent for patience limits.
	others uint32
}

func newWatchdog() *watchdog { return &watchdog{orders: make(chan expectation, 1)} }

// expect replaces the expectation. It is not safe for concurrent use.
func (w *watchdog) expect(sources uint32, limit time.Duration) {
	w.order(expectation{sources: sources, limit: limit})
}

// order is expect with all fields of an expectation.
func (w *watchdog) order(e expectation) {
	select {
	case <-w.orders:
	default:
	}
	w.orders <- e
}

// run calls silent when the current expectation is not met, and returns then or when
// the context ends.
func (w *watchdog) run(ctx context.Context, silent func()) {
	var now expectation
	quiet, waited := 0, 0 // ticks without a message, and without one on an ear that counts
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if now.limit > 0 {
			timer.Reset(max(now.limit/watchTicks, time.Millisecond))
			tick = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case now = <-w.orders:
			quiet, waited = 0, 0
			w.heard.Store(0)
		case <-tick:
			quiet, waited = quiet+1, waited+1
			switch heard := w.heard.Swap(0); {
			case heard&now.sources != 0:
				quiet, waited = 0, 0
			case heard&now.others != 0:
				quiet = 0
			}
			if quiet > watchTicks || waited > patience*watchTicks {
				silent()
				return
			}
		}
	}
}
