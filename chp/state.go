package chp

import (
	"context"
	"fmt"
	"sync"
)

// State says how far a client is with its server.
type State uint8

// States of a client, as the guide's client has them.
const (
	StateInitial State = iota // no server is connected
	StateSyncing              // a server is connected, its snapshot not yet complete
	StateActive               // the replica follows the server
)

func (s State) String() string {
	switch s {
	case StateInitial:
		return "INITIAL"
	case StateSyncing:
		return "SYNCING"
	case StateActive:
		return "ACTIVE"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// status is the state of a client for those who ask and those who wait. It
// has its own lock, held for a few instructions and never together with
// another.
type status struct {
	mu      sync.Mutex
	state   State
	server  string
	closed  bool          // nothing changes any more
	failed  string        // the server that the last attempt to follow one was about
	failure error         // why it failed; nil while ACTIVE
	changed chan struct{} // closed, and replaced, at every change
}

func newStatus() *status { return &status{changed: make(chan struct{})} }

// set changes the state and reports whether that was a change.
func (s *status) set(state State, server string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.state == state && s.server == server {
		return false
	}
	s.state, s.server = state, server
	if state == StateActive {
		s.failed, s.failure = "", nil
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return true
}

// fail notes why a server is not followed.
func (s *status) fail(server string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.failure = server, err
}

// why returns the last failure to follow a server, nil if there was none since the
// client was ACTIVE.
func (s *status) why() (server string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed, s.failure
}

// close ends all waiting, now and later.
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

// waitActive waits for ACTIVE.
func (s *status) waitActive(ctx context.Context) error {
	for {
		s.mu.Lock()
		state, closed, changed := s.state, s.closed, s.changed
		s.mu.Unlock()
		switch {
		case closed:
			return ErrClosed
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
