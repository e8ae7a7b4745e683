package chp

import (
	"context"
	"errors"

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
func (c *Client) Sync(ctx context.Context) error { return c.waited(c.follower.Sync(ctx)) }

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
