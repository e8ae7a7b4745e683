package sockets

import (
	"context"
	"fmt"
	"sync"
)

// crowd counts the connected peers of a socket, without those that it ignores.
type crowd struct {
	mu      sync.Mutex
	peers   int
	changed chan struct{} // closed when peers changes; nil without a waiter
}

func (c *crowd) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers += n
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// lacks returns nil if there are at least n peers, and otherwise a channel that
// is closed when their number changes.
func (c *crowd) lacks(n int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers >= n {
		return nil
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// WaitPeers waits until at least n peers are connected and have completed their
// handshake, or until the context is done. Peers that the socket ignores do not
// count; see EventPeerIgnored. A peer may disconnect again before the caller acts on
// the result.
//
// If the context is done first, the error is the context's. It also wraps why the last
// attempt to reach each endpoint of Connect has failed, for those that are not connected;
// see Endpoints.
//
// A connected subscriber has not necessarily subscribed: a publisher waits with
// WaitSubscribers, and a subscriber with WaitSubscribed.
func (s *socket) WaitPeers(ctx context.Context, n int) error {
	for {
		if err := s.open(); err != nil {
			return err
		}
		changed := s.crowd.lacks(n)
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s.unreached(ctx.Err())
		case <-s.closing:
		}
	}
}

// unreached adds to err why endpoints of Connect are not connected.
func (s *socket) unreached(err error) error {
	separator := ": "
	for _, e := range s.Endpoints() {
		if e.Err != nil {
			err = fmt.Errorf("%w%s%s: %w", err, separator, e.Endpoint, e.Err)
			separator = "; "
		}
	}
	return err
}
