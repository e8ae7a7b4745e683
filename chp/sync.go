package chp

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"clustermap/chp/internal/follow"
)

// ErrNoSync is returned by [Client.Sync] at a server that does not answer: one of another
// implementation, or of an earlier version of this one.
var ErrNoSync = follow.ErrNoSync

// Sync waits until the replica has every update that was committed before the call, of this
// client and of all others: what Get returns after it is at least as new as what any program
// could have read anywhere before it. It asks the server, which answers with the sequence of its
// last published update, and waits until the replica has come so far. That is one small round
// trip; calls at the same time share it. Without Sync a replica may be behind by what is on its
// way.
//
// A server answers only while it is active, and neither hands over nor may be cut off from
// everybody. If both servers of a pair are active because the network separates them, each
// answers for its own side.
//
// Sync waits until the client is ACTIVE, and goes on at the next server if the present one is
// lost. If the context ends first, the error is that of [Client.WaitActive] if the client is not
// ACTIVE. A server that cannot answer makes it ErrNoSync, at once.
func (c *Client) Sync(ctx context.Context) error { return c.waited(c.follower.Sync(ctx, 0)) }

// ErrNotFollowing is why a client is not ready that follows no server now; see [Client.Ready].
var ErrNotFollowing = errors.New("chp: the client follows no server now")

// LagError reports that a client is not ready although it follows a server: its replica has not
// come near enough to the server's map in time.
type LagError struct {
	Server string // as named in ClientOptions.Servers
	MaxLag int64  // as passed to Ready
	Err    error  // of the context
}

func (e *LagError) Error() string {
	return fmt.Sprintf("chp: the replica is more than %d updates behind %s: %v", e.MaxLag, e.Server, e.Err)
}

// Unwrap returns Err.
func (e *LagError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error.
func (e *LagError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Ready returns nil if the client is fit for service: it follows a server now, and before the
// context ends its replica has come to within maxLag updates of what that one had committed when
// Ready was called. That is what the readiness check of a service asks for, with a context
// of about a second and a maxLag of what the server takes in some of that: see
// clustermap/chp/admin, which has such a check. It costs the round trip of [Client.Sync].
//
// Ready does not wait for a server: if the client follows none, the error is at once a
// [*NotActiveError] that wraps ErrNotFollowing. It is a [*LagError] if the replica is too far
// behind, or the server does not answer. At a server that cannot answer (see ErrNoSync) the client
// is ready if it follows it.
//
// A client of subtrees may be behind only by updates that are none of its own; such a server
// tells it so at once.
func (c *Client) Ready(ctx context.Context, maxLag int64) error {
	state, server := c.follower.State()
	if state != StateActive {
		if err := c.notActive(ErrNotFollowing); err != nil {
			return err
		}
	}
	err := c.follower.Sync(ctx, max(maxLag, 0))
	switch {
	case err == nil, errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, ErrNoSync):
		return nil
	}
	return cmp.Or(c.notActive(ErrNotFollowing), error(&LagError{server, maxLag, err}))
}

// GetSync is Get after Sync.
func (c *Client) GetSync(ctx context.Context, key string) (value []byte, ok bool, err error) {
	if err := c.Sync(ctx); err != nil {
		return nil, false, err
	}
	value, ok = c.Get(key)
	return value, ok, nil
}

// WaitFor waits until the replica has every update of the client's subtrees up to a sequence,
// such as one that [Client.SetSync] has returned to another client of the same map: then Get returns what that has set,
// or something newer. It asks nothing. A client of subtrees in which nothing changes learns with
// each heartbeat of the server how far it has come. If the context ends first, the error is that
// of [Client.WaitActive] if the client is not ACTIVE.
func (c *Client) WaitFor(ctx context.Context, seq int64) error {
	return c.waited(c.follower.WaitFor(ctx, seq))
}

// waited returns the error of a wait, with the reasons why the client is not ACTIVE.
func (c *Client) waited(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return c.explain(err)
	}
	return err
}
