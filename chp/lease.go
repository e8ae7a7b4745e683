package chp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// Lease keeps a key in the map for as long as its program lives, as services do that
// register themselves: see [Client.KeepAlive].
type Lease struct {
	client *Client
	key    string
	opts   []SetOption
	every  time.Duration // between two refreshes
	cancel context.CancelFunc
	ended  chan struct{}
	renew  chan struct{} // capacity 1; there is a new value

	// Owned by KeepAlive, then by run.
	number  uint64 // of the last update
	pending bool   // an update was queued and may still come back

	mu    sync.Mutex
	value []byte
	err   error
	leave bool // do not delete the key
}

// KeepAlive sets a key with a time to live, waits as SetSync does, and then sets it again
// each third of the time to live, until the context ends, the lease is closed, or the
// client is. It does not wait longer than that for an update to come back. It also sets
// the key again each time the client has begun to follow a server, so the key appears at
// another one after a failover, and at one that has lost its map.
//
// Each watch of the key reports each refresh, as an OpSet with CauseSet, whose value is
// the same as before unless [Lease.Update] was called: compare it to tell a change from
// a refresh. A [View] does so, and reports changes only.
//
// If the process dies, the key expires. A server that has restarted with its log, or has
// taken over in a pair, lets no key expire until clients have had time to come back: see
// ServerOptions.ExpiryGrace.
//
// When the context ends, or with [Lease.Close], the key is deleted, unless another update
// has replaced this client's. Without a server to send the deletion to, the key expires.
// The protocol has no conditional deletion: an update of another client that this one has
// not received yet is deleted too; if it is that of a lease, the key is back with the
// lease's next refresh. For a program that restarts and sets the key again, [Lease.Stop] leaves the key until
// it expires, so that other clients see no gap; so does Close of the client. An update of
// a successor cancels the time to live of its predecessor's.
//
// For a key outside of the client's subtrees KeepAlive does not wait for the update to
// come back, and the key is deleted even if another client has set it.
//
// A [Server] has no KeepAlive. A program with a server in its own process, whose key
// shall expire after a crash of the process, calls [Server.Set] with [WithTTL] in a loop,
// more often than the time to live; or it runs a client on an inproc endpoint of the
// server (ServerOptions.Endpoints) and calls KeepAlive of that.
//
// If a connection breaks before the first update has come back, KeepAlive sets the key
// again, as the lease would, even if the update may have been applied. Otherwise errors are
// those of SetSync; then there is no lease. A time to live that is not positive is a
// *MessageError with ReasonTTL.
func (c *Client) KeepAlive(ctx context.Context, key string, value []byte, ttl time.Duration, opts ...SetOption) (*Lease, error) {
	return c.keepAlive(ctx, key, value, ttl, ttl/3, opts)
}

func (c *Client) keepAlive(ctx context.Context, key string, value []byte, ttl, every time.Duration, opts []SetOption) (*Lease, error) {
	if ttl <= 0 {
		return nil, kvmsg.ErrTTL
	}
	l := &Lease{
		client: c, key: key, value: slices.Clone(value), every: max(every, time.Millisecond),
		opts: append(slices.Clone(opts), WithTTL(ttl)), ended: make(chan struct{}), renew: make(chan struct{}, 1),
	}
	var sessions uint64
	var began time.Time
	var seq int64
	for again := true; again; {
		// What is set before the first snapshot comes back after it.
		sessions, began = max(c.follower.Counted.Sessions(), 1), time.Now()
		var err error
		seq, err = l.set(ctx)
		lost := c.follower.Counted.Sessions() != sessions || c.State() != StateActive
		if again = errors.Is(err, ErrUncertain) && lost && ctx.Err() == nil; err != nil && !again {
			return nil, err
		}
	}
	due := l.every - time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.follower.Context().Err() != nil {
		return nil, ErrClosed
	}
	ctx, l.cancel = context.WithCancel(ctx)
	c.leases.Go(func() { l.run(ctx, due, seq, sessions) })
	return l, nil
}

// Update replaces the value of the key, which is set soon.
func (l *Lease) Update(value []byte) {
	l.mu.Lock()
	l.value = slices.Clone(value)
	l.mu.Unlock()
	wake.Signal(l.renew)
}

// Err returns the error of the last refresh, or nil if it succeeded. The lease continues
// after errors. If a refresh has not come back when the next one is due, the error is
// context.DeadlineExceeded, in a [*NotActiveError] while the client is not ACTIVE; the
// server may have applied it all the same.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close ends the lease and deletes the key, as described at [Client.KeepAlive]. It waits
// until the deletion is queued, for a second at most. Close may be called more than once;
// it returns nil.
func (l *Lease) Close() error {
	l.cancel()
	<-l.ended
	return nil
}

// Stop ends the lease without deleting the key.
func (l *Lease) Stop() {
	l.mu.Lock()
	l.leave = true
	l.mu.Unlock()
	l.cancel()
	<-l.ended
}

// set sets the key, and returns the sequence of the update, or 0 if it does not come back.
func (l *Lease) set(ctx context.Context) (seq int64, err error) {
	l.mu.Lock()
	value := l.value
	l.mu.Unlock()
	if len(value) == 0 {
		return 0, ErrEmptyValue
	}
	if l.client.subtrees.Contains(bytesOf(l.key)) {
		w := ledger.NewWait()
		seq, err = l.client.updateWait(ctx, l.key, value, l.opts, w)
		l.number = max(l.number, w.Number())
		l.pending = err != nil && (l.pending || w.Number() > 0)
		return seq, err
	}
	return 0, l.client.Set(ctx, l.key, value, l.opts...)
}

// run refreshes the key until the context ends, first after the time next. seq is the
// sequence of the last update, sessions the number of sessions before it.
func (l *Lease) run(ctx context.Context, next time.Duration, seq int64, sessions uint64) {
	defer close(l.ended)
	defer l.cancel()
	c := l.client
	due := time.NewTimer(next)
	defer due.Stop()
	for {
		if !l.wait(ctx, due.C, sessions) {
			l.delete(seq)
			return
		}
		sessions = c.follower.Counted.Sessions()
		due.Reset(l.every)
		soon, cancel := context.WithTimeout(ctx, l.every)
		now, err := l.set(soon)
		cancel()
		switch {
		case err == nil:
			seq = now
		case errors.Is(err, ErrUncertain):
			sessions = 0 // set it again as soon as the client is ACTIVE
		}
		if ctx.Err() == nil {
			l.mu.Lock()
			l.err = err
			l.mu.Unlock()
		}
	}
}

// wait waits until the key must be set again, at the latest when due says so. It returns
// false if the lease has ended.
func (l *Lease) wait(ctx context.Context, due <-chan time.Time, sessions uint64) bool {
	c := l.client
	for {
		state, changed := c.follower.Watch()
		if ctx.Err() != nil || c.follower.Context().Err() != nil {
			return false
		}
		if state == StateActive && c.follower.Counted.Sessions() != sessions {
			return true
		}
		select {
		case <-due:
			return true
		case <-l.renew:
			return true
		case <-changed:
		case <-ctx.Done():
		case <-c.follower.Context().Done():
		}
	}
}

// delete deletes the key at the end of the lease, unless another update than those of the
// lease has set it. seq is the sequence of the last one that came back in time.
func (l *Lease) delete(seq int64) {
	c := l.client
	l.mu.Lock()
	leave := l.leave
	l.mu.Unlock()
	if leave || c.State() != StateActive {
		return
	}
	if seq > 0 {
		replaced, found := false, false
		if now := c.live.Now(); now != nil {
			// A server with another map may have lower sequences, and one of another
			// implementation no UUIDs in its snapshots.
			found = now.Store.View(bytesOf(l.key), func(r kvmsg.Record) { replaced = r.Seq() != seq && !c.writer.Made(r, l.number) })
		}
		if replaced || !found && !l.pending {
			return
		}
	}
	ctx, cancel := context.WithTimeout(c.follower.Context(), leaseGoodbye)
	defer cancel()
	_ = c.Delete(ctx, l.key) // without it the key expires
}
