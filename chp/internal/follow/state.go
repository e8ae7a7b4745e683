package follow

import (
	"context"
	"sync"
	"sync/atomic"

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
// It is a part of Follower. Its lock is held for a few instructions and never together with another one.
type status struct {
	mu      sync.Mutex
	state   State
	server  string
	closed  bool          // the state no longer changes
	changed chan struct{} // closed, and replaced, at every change

	attempts []attempt   // one for each server
	silent   atomic.Bool // the server of the current session has sent nothing yet
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

// Leave makes waits end with the error of a closed client, present and future ones.
func (s *status) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.state, s.server = StateInitial, ""
		close(s.changed)
	}
}

// State returns the state, and the server that is followed or tried: "" before the first
// attempt and after Close.
func (s *status) State() (State, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.server
}

// Watch returns the state, and a channel that is closed when it changes.
func (s *status) Watch() (State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.changed
}

// WaitActive waits until a server is followed. Its error is that of the context, or of a
// closed client.
func (s *status) WaitActive(ctx context.Context) error {
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
