package follow

import (
	"time"

	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/wire"
)

// silence returns how long the server may be silent. A negative value means no limit.
func (f *Follower) silence() time.Duration {
	if !f.opts.Dialect.Full {
		return -1
	}
	return f.opts.HeartbeatTimeout
}

// likely waits until the subscriptions have probably taken effect.
func (s *Session) likely() error {
	o := s.opts
	return wire.AwaitSubscribed(s.ctx, s.sub, o.HeartbeatTimeout >= 0, o.SyncTimeout)
}

// subtreesAt returns the subtrees to request from a server of another implementation.
func subtreesAt(d wire.Dialect, s *subtree.Set) subtree.Set {
	if !d.Subtrees {
		return subtree.New(nil)
	}
	return s.Plain()
}
