package follow

import (
	"context"
	"sync"

	"clustermap/internal/closed"
	"clustermap/internal/text"
)

// State is chp.State.
type State uint8

// The values of State.
const (
	StateInitial State = iota
	StateSyncing
	StateActive
)

// String returns INITIAL, SYNCING or ACTIVE.
func (s State) String() string {
	return text.Of(s, "State", "INITIAL", "SYNCING", "ACTIVE")
}

// MarshalText returns the text of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// status holds the state of a client for callers that ask for it and callers that wait.
// Its lock is held for a few instructions and never together with another one.
type status struct {
	mu      sync.Mutex
	state   State
	server  string
	closed  bool          // the state no longer changes
	changed chan struct{} // closed, and replaced, at every change

	attempts []attempt // one for each server
}

func newStatus(servers []string) *status {
	s := &status{changed: make(chan struct{}), attempts: make([]attempt, len(servers))}
	for i, name := range servers {
		s.attempts[i].server = name
	}
	return s
}

// set sets the state and reports whether it changed.
func (s *status) set(state State, server string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.state == state && s.server == server {
		return false
	}
	s.state, s.server = state, server
	if state == StateActive {
		for i := range s.attempts {
			s.attempts[i].err = nil
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return true
}

// close wakes all goroutines that wait, and prevents further waiting.
func (s *status) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.state, s.server = StateInitial, ""
		close(s.changed)
	}
}

func (s *status) get() (State, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.server
}

// watch returns the state, and a channel that is closed when it changes.
func (s *status) watch() (State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.changed
}

// waitActive waits until the client is ACTIVE.
func (s *status) waitActive(ctx context.Context) error {
	for {
		s.mu.Lock()
		state, over, changed := s.state, s.closed, s.changed
		s.mu.Unlock()
		switch {
		case over:
			return closed.CHP
		case state == StateActive:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
