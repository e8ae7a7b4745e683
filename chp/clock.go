package chp

import (
	"context"
	"time"
)

// ttlTick is how exactly a TTL is kept.
const ttlTick = 10 * time.Millisecond

// runClock publishes heartbeats, expires keys, and has the store give back memory.
// While nothing has a TTL it wakes for the heartbeats alone.
//
// Expiring and tidying are done in portions, with heartbeats sent between them: ten
// million keys that expire at once take seconds, and clients must not take the
// server for dead meanwhile. Deletions are paced like updates (see pacer), so that
// they do not overflow the queues of subscribers either.
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
			// Only when that changes: a ticker that each heartbeat reset would
			// never tick where heartbeats are more frequent.
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

// heartbeat publishes HUGZ, unless the server is the one of a pair that does not serve:
// a client of another make that still follows it is to notice, and to turn to the
// other one.
func (s *Server) heartbeat() {
	if s.pair == nil || s.pair.active.Load() {
		s.sequencer.heartbeat()
	}
}
