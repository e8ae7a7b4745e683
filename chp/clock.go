package chp

import (
	"context"
	"runtime"
	"time"

	"clustermap/internal/timer"
)

// ttlTick is the precision of times to live.
const ttlTick = 10 * time.Millisecond

// runClock publishes heartbeats, deletes expired keys, and lets the store free memory.
// While no key has a TTL it wakes only for heartbeats.
//
// It expires and tidies in portions and sends heartbeats in between: ten million keys
// that expire together take seconds, and clients must not consider the server dead. The
// pacer delays deletions, like updates, so that they do not overflow the queues of
// subscribers.
func (s *Server) runClock(ctx context.Context) {
	heartbeat := time.NewTicker(s.opts.HeartbeatInterval)
	defer heartbeat.Stop()
	tick := time.NewTicker(ttlTick)
	defer tick.Stop()
	pace := newPacer(s.opts.SlowestIntake, s.fullest)
	published := 0 // bytes of deletions that pace has not counted yet
	ticking := true
	var expiring, tidying bool
	ran := time.Now()
	for ctx.Err() == nil {
		// All that expires below is due by now: if this process is stopped from here on,
		// the next iteration notices before it expires more.
		now := time.Now()
		if late := now.Sub(ran); ticking && late > standstill {
			s.stoodStill(late)
		}
		ran = now
		select {
		case <-heartbeat.C:
			s.heartbeat()
			s.peerLog.Flush(now)
			tidying = true
		default:
		}
		if expiring {
			wait := pace.next(published, now)
			published = 0
			if wait > 0 {
				if !pause(ctx, wait) {
					return
				}
				ran = ran.Add(wait)
				continue
			}
			if !s.sequencer.canExpire() {
				if !pause(ctx, ttlTick) {
					return
				}
				continue
			}
			expiring, published = s.sequencer.expire(now)
			runtime.Gosched() // with one processor the tickers would wait, and the updates
			continue
		}
		if tidying {
			if tidying = s.sequencer.tidy(); tidying && s.sequencer.timers() == 0 {
				continue
			}
		}
		if some := s.sequencer.timers() > 0; some != ticking {
			// Only on a change: a ticker that is reset more often than it ticks would
			// never tick.
			if ticking = some; some {
				tick.Reset(ttlTick)
				if late := timer.At(now) - s.sequencer.armedSince(); late > standstill {
					s.stoodStill(late)
				}
			} else {
				tick.Stop()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-heartbeat.C:
			s.heartbeat()
			tidying = true
		case <-s.sequencer.alarm.armed:
		case <-tick.C:
			expiring = true
		}
	}
}

// standstill is how late runClock is if this process did not run.
const standstill = time.Second

// stoodStill begins a grace after this process did not run for a while, for example
// because it was stopped. Updates that refresh keys are still in flight, or come from
// clients that have to come back.
func (s *Server) stoodStill(d time.Duration) {
	if s.opts.ExpiryGrace < 0 {
		return
	}
	q := &s.sequencer
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.passive {
		q.state.Deadlines.Spare(q.order.last, s.opts.ExpiryGrace)
		s.log.Warn("the server did not run for a while; no key expires during the grace", "for", d, "grace", s.opts.ExpiryGrace)
	}
}

// heartbeat publishes HUGZ, except on a server of a pair that is not active. A client
// of another implementation that still follows such a server notices the silence and
// changes to the active one.
func (s *Server) heartbeat() {
	if s.pair == nil || s.pair.active.Load() {
		s.sequencer.heartbeat()
	}
}
