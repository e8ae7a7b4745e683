package order

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"clustermap/internal/store"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
)

// Clock is what a server does by itself, at its time.
type Clock struct {
	Heartbeat time.Duration   // interval
	Grace     time.Duration   // in which no key expires after the process was stopped; negative means none
	Pace      *Pacer          // of deletions
	Beat      func(time.Time) // called with each heartbeat
	Log       *slog.Logger
}

// RunClock publishes heartbeats, deletes expired keys, and lets the store free memory.
// While no key has a TTL it wakes only for heartbeats.
//
// It expires and tidies in portions and sends heartbeats in between: ten million keys
// that expire together take seconds, and clients must not consider the server dead. The
// pacer delays deletions, like updates, so that they do not overflow the queues of
// subscribers.
func (q *Sequencer) RunClock(ctx context.Context, c Clock) {
	heartbeat := time.NewTicker(c.Heartbeat)
	defer heartbeat.Stop()
	tick := time.NewTicker(ttlTick)
	defer tick.Stop()
	published := 0 // bytes of deletions that c.Pace has not counted yet
	ticking := true
	var expiring, tidying bool
	beat := func() {
		q.heartbeat()
		c.Beat(time.Now())
		tidying = true
	}
	ran := time.Now()
	for ctx.Err() == nil {
		// All that expires below is due by now: if this process is stopped from here on,
		// the next iteration notices before it expires more.
		now := time.Now()
		if late := now.Sub(ran); ticking && late > standstill {
			q.stoodStill(&c, late)
		} else if ticking && late > lateFrom {
			q.wasLate(now, late)
		}
		ran = now
		select {
		case <-heartbeat.C:
			beat()
		default:
		}
		if expiring {
			wait := c.Pace.next(published, now)
			published = 0
			if wait > 0 {
				if !wake.Pause(ctx, wait) {
					return
				}
				ran = ran.Add(wait)
				continue
			}
			if !q.canExpire() {
				if !wake.Pause(ctx, ttlTick) {
					return
				}
				continue
			}
			expiring, published = q.Expire(now)
			runtime.Gosched() // with one processor the tickers would wait, and the updates
			continue
		}
		if tidying {
			if tidying = q.live.Tidy(store.TidyPortion); tidying {
				if n, _ := q.timers(); n == 0 {
					continue
				}
			}
		}
		if n, since := q.timers(); n > 0 != ticking {
			// Only on a change: a ticker that is reset more often than it ticks would
			// never tick.
			if ticking = n > 0; ticking {
				tick.Reset(ttlTick)
				if late := timer.At(now) - since; late > standstill {
					q.stoodStill(&c, late)
				}
			} else {
				tick.Stop()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-heartbeat.C:
			beat()
		case <-q.alarm.armed:
		case <-tick.C:
			expiring = true
		}
	}
}

// stoodStill begins a grace after this process did not run for a while, for example
// because it was stopped. Updates that refresh keys are still in flight, or come from
// clients that have to come back.
func (q *Sequencer) stoodStill(c *Clock, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.passive {
		return
	}
	q.state.Deadlines.Spare(q.order.last, c.Grace) // leases have all of their time even without a grace
	if c.Grace >= 0 {
		c.Log.Warn("the server did not run for a while; no key expires during the grace", "for", d, "grace", c.Grace)
	}
}
