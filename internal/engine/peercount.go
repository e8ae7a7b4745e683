package engine

import (
	"context"
	"sync"

	"clustermap/internal/queue"
)

// peerCount counts the connected peers of a socket, without those that it ignores.
type peerCount struct {
	mu      sync.Mutex
	peers   int
	changed chan struct{} // closed when peers changes; nil without a waiter
}

func (c *peerCount) add(n int) {
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
func (c *peerCount) lacks(n int) <-chan struct{} {
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

// await waits until there are at least n peers.
func (c *peerCount) await(ctx context.Context, n int, closing <-chan struct{}) error {
	for {
		select {
		case <-closing:
			return queue.ErrClosed
		default:
		}
		changed := c.lacks(n)
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-closing:
		}
	}
}
