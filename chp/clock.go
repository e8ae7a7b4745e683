package chp

import (
	"context"
	"time"
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
	for ctx.Err() == nil {
		select {
		case <-heartbeat.C:
			s.heartbeat()
			tidying = true
		default:
		}
		if expiring {
			wait := pace.next(published, time.Now())
			published = 0
			if wait > 0 {
				if !pause(ctx, wait) {
					return
				}
				continue
			}
			if !s.sequencer.hasRoom() {
				if !pause(ctx, ttlTick) {
					return
				}
				continue
			}
			expiring, published = s.sequencer.expire(time.Now())
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
		case <-s.sequencer.armed:
		case <-tick.C:
			expiring = true
		}
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
