package engine

import (
	"sync/atomic"
	"time"
)

// The stack of a connection's writer is a large part of the cost of an idle connection.
// So a writer that has slept for a while ends, and is started anew for the next message.
// Each socket has one timer for that, which runs while there are writers.

// retirement is the timer.
type retirement struct {
	runs  atomic.Bool
	timer *time.Timer // guarded by Socket.mu
}

// retireLater starts the timer if it does not run. It is called by each writer
// that starts and may end, with no lock held. A writer that sends heartbeats does not
// end: its ticker would wake it soon.
func (s *Socket) retireLater() {
	if s.retire.runs.Load() || s.retire.runs.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.wg.Add(1)
	s.retire.timer = time.AfterFunc(retireInterval, func() {
		defer s.wg.Done()
		s.retire.runs.Store(false) // first: a writer that starts now sets it again
		if s.Retire() {
			s.retireLater()
		}
	})
}

// stopRetiring stops the timer. mu must be held, and closed set.
func (s *Socket) stopRetiring() {
	if t := s.retire.timer; t != nil && t.Stop() {
		s.wg.Done()
	}
}

// Retire ends the writers that have slept since the last call, and reports whether
// there are others.
func (s *Socket) Retire() (left bool) {
	for _, p := range s.Pipes() {
		left = p.Out.Retire() || left
	}
	return left
}
