package chp

import (
	"time"

	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/wire"
)

// silence returns how long the server may be silent. A negative value means no limit.
func (c *Client) silence() time.Duration {
	if !c.dialect.Full {
		return -1
	}
	return c.opts.HeartbeatTimeout
}

// likely waits until the subscriptions have probably taken effect.
func (s *session) likely() error {
	o := &s.client.opts
	return wire.AwaitSubscribed(s.ctx, s.sub, o.HeartbeatTimeout >= 0, o.SyncTimeout)
}

// subtreesAt returns the subtrees to request from a server of another implementation.
func subtreesAt(d wire.Dialect, s *subtree.Set) subtree.Set {
	if !d.Subtrees {
		return subtree.New(nil)
	}
	return s.Plain()
}
