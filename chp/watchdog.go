package chp

import (
	"context"
	"sync/atomic"
	"time"
)

// watchdog notices silence. It counts ticks in which nothing was heard rather
// than compare times: a process that was stopped for a while finds one tick
// gone by, not its server dead. What was heard costs one atomic operation a
// batch, and no clock is read for it.
type watchdog struct {
	heard  atomic.Uint32    // the ears that heard something since the last tick
	orders chan expectation // capacity 1: the latest counts
}

// expectation is what a watchdog is to listen for.
type expectation struct {
	ears  uint32        // those that count; with none it is a plain time limit
	limit time.Duration // how long they may be silent; <= 0: for ever

	// Ears that show that the server lives, though it may have much to do: while they
	// hear something, those that count may be silent for patience limits.
	others uint32
}

// patience is how many limits a server that lives may let pass.
const patience = 6

// watchTicks is into how many ticks a limit is divided: silence is noticed
// after the limit and at most one such part more.
const watchTicks = 8

func newWatchdog() *watchdog { return &watchdog{orders: make(chan expectation, 1)} }

// expect starts afresh with another expectation. Not for concurrent use.
func (w *watchdog) expect(ears uint32, limit time.Duration) {
	w.order(expectation{ears: ears, limit: limit})
}

// order is expect with everything that an expectation has.
func (w *watchdog) order(e expectation) {
	select {
	case <-w.orders:
	default:
	}
	w.orders <- e
}

// run calls silent once when the expectation of the moment is not met, and
// returns then or when the context ends.
func (w *watchdog) run(ctx context.Context, silent func()) {
	var now expectation
	quiet, waited := 0, 0 // ticks without a sound, and without one that counts
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
			case heard&now.ears != 0:
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
