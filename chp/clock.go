package chp

import (
	"context"
	"time"
)

// ttlTick is how exactly a TTL is kept.
const ttlTick = 10 * time.Millisecond

// runClock publishes heartbeats and expires keys. While nothing has a TTL it
// wakes for the heartbeats alone.
func (s *Server) runClock(ctx context.Context) {
	heartbeat := time.NewTicker(s.opts.HeartbeatInterval)
	defer heartbeat.Stop()
	tick := time.NewTicker(ttlTick)
	defer tick.Stop()
	for {
		ticks := tick.C
		if s.sequencer.timers() == 0 {
			ticks = nil
			tick.Stop()
		} else {
			tick.Reset(ttlTick)
		}
		select {
		case <-ctx.Done():
			return
		case <-heartbeat.C:
			s.sequencer.heartbeat()
		case <-s.sequencer.armed:
		case now := <-ticks:
			for s.sequencer.expire(now) && ctx.Err() == nil {
			}
		}
	}
}
