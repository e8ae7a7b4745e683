package sockets

import "time"

// The stack of a connection's writer is a large part of the cost of an idle connection.
// So a writer that has slept for a while ends, and is started anew for the next message.
// Each socket has one timer for that, which runs while there are writers.

// retireInterval is how often the timer looks: a writer ends that has slept from
// one look to the next.
const retireInterval = 5 * time.Second

// retireLater starts the timer if it does not run. It is called by each writer
// that starts and may end, with no lock held. A writer that sends heartbeats does not
// end: its ticker would wake it soon.
func (s *socket) retireLater() {
	if s.retiring.Load() || s.retiring.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.wg.Add(1)
	s.retirer = time.AfterFunc(retireInterval, func() {
		defer s.wg.Done()
		s.retiring.Store(false) // first: a writer that starts now sets it again
		if s.retire() {
			s.retireLater()
		}
	})
}

// stopRetiring stops the timer. mu must be held, and closed set.
func (s *socket) stopRetiring() {
	if s.retirer != nil && s.retirer.Stop() {
		s.wg.Done()
	}
}

// retire ends the writers that have slept since the last call, and reports whether
// there are others.
func (s *socket) retire() (left bool) {
	for _, p := range s.list() {
		left = p.out.Retire() || left
	}
	return left
}
