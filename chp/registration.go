package chp

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// Registration keeps a key in the map for as long as its program lives, as services do that
// register themselves: see [Client.KeepAlive].
type Registration struct {
	client *Client
	key    string
	opts   []SetOption // without a time to live
	ttl    time.Duration
	every  time.Duration // between two looks at the key, or two refreshes
	last   time.Duration // for the deletion at the end; if 0, goodbye
	cancel context.CancelFunc
	ended  chan struct{}
	renew  chan struct{} // capacity 1; there is a new value

	// Owned by KeepAlive, then by run.
	lease   *Lease // of the key; nil if the server knows no leases, and the key has to be refreshed
	seq     int64  // of the last update that came back in time, or 0
	number  uint64 // of the last refresh
	pending bool   // a refresh was queued and may still come back

	mu    sync.Mutex
	value []byte
	unset bool // the value is to be set
	err   error
	stays bool // do not delete the key
}

// KeepAlive sets a key, waits as SetSync does, and keeps it in the map until the context ends, the
// registration is closed, or the client is. If the process dies, the key expires after the
// time to live.
//
// The key is attached to a lease of its own ([Client.Grant]). Renewals of a client's leases are
// one message for 1,024 of them, and publish nothing: a watch reports the key when it is set, when
// [Registration.Update] has another value, and when it ends. As the time to live is that of the lease,
// Entry.TTL of the key is 0.
//
// Each third of the time to live, and each time the client has begun to follow a server, the registration looks for
// the key, in the client's replica. It sets it again if it is not there, or another update has replaced
// this client's. So the key appears at another server after a failover, and at one that has lost its map. It
// also sets it again if the lease has ended because the server could not be reached for as long. For a key outside
// of the client's subtrees it asks the server instead.
//
// At a server that knows no leases, of another implementation or an earlier version, and for a time to live of less than 100ms, the
// key is set with the time to live, and set again each third of it. Then each watch reports each
// refresh, as an OpSet with CauseSet, whose value is the same as before: compare it to tell a change
// from a refresh. A [View] does so, and reports changes only.
//
// A server that has restarted with its log, or has taken over in a pair, lets no key expire until clients have had
// time to come back: see ServerOptions.ExpiryGrace.
//
// When the context ends, or with [Registration.Close], the key is deleted, unless another update
// has replaced this client's. Without a server to send the deletion to, the key expires. For a program that restarts
// and sets the key again, [Registration.Stop] leaves the key until it expires, so that other clients see no
// gap; so does Close of the client. An update of a successor takes the key away from its predecessor's lease.
// Servers that know no leases have no conditional deletion either: there, an update of another client that
// this one has not received yet is deleted too, and for a key outside of the client's subtrees any
// update is, and KeepAlive does not wait for its own to come back.
//
// A [Server] has no KeepAlive. A program with a server in its own process, whose key
// shall expire after a crash of the process, calls [Server.Set] with [WithTTL] in a loop,
// more often than the time to live; or it runs a client on an inproc endpoint of the
// server (ServerOptions.Endpoints) and calls KeepAlive of that.
//
// If a connection breaks before the first update has come back, KeepAlive sets the key
// again, as the registration would, even if the update may have been applied. Otherwise errors are
// those of SetSync; then there is no registration. A time to live that is not positive is a
// *MessageError with ReasonTTL. The options are those of Set except WithLease; a time to live among them is ignored.
func (c *Client) KeepAlive(ctx context.Context, key string, value []byte, ttl time.Duration, opts ...SetOption) (*Registration, error) {
	return c.keepAlive(ctx, key, value, ttl, ttl/3, opts)
}

func (c *Client) keepAlive(ctx context.Context, key string, value []byte, ttl, every time.Duration, opts []SetOption) (*Registration, error) {
	switch {
	case ttl <= 0:
		return nil, kvmsg.ErrTTL
	case leased(opts):
		return nil, errLeaseBatch
	}
	l := &Registration{
		client: c, key: strings.Clone(key), value: slices.Clone(value), ttl: ttl, every: max(every, time.Millisecond),
		opts:  slices.DeleteFunc(slices.Clone(opts), func(o SetOption) bool { return o.kind == optionTTL }),
		ended: make(chan struct{}), renew: make(chan struct{}, 1),
	}
	var sessions uint64
	var began time.Time
	for again := true; again; {
		// What is set before the first snapshot comes back after it.
		sessions, began = max(c.follower.Counted.Sessions(), 1), time.Now()
		err := l.set(ctx)
		lost := c.follower.Counted.Sessions() != sessions || c.State() != StateActive
		if again = errors.Is(err, ErrUncertain) && lost && ctx.Err() == nil; err != nil && !again {
			l.unlease()
			return nil, err
		}
	}
	due := l.every - time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.follower.Context().Err() != nil {
		l.unlease()
		return nil, ErrClosed
	}
	ctx, l.cancel = context.WithCancel(ctx)
	c.registrations.Go(func() { l.run(ctx, due, sessions) })
	return l, nil
}

// Update replaces the value of the key, which is set soon.
func (l *Registration) Update(value []byte) {
	l.mu.Lock()
	l.value, l.unset = slices.Clone(value), true
	l.mu.Unlock()
	wake.Signal(l.renew)
}

// Err returns nil if the key was there with its value, or was set, when the registration last looked, and
// otherwise the error. The registration continues after errors. If the server did not answer in time, a third of the time to
// live, the error is context.DeadlineExceeded, in a [*NotActiveError] while the client is not ACTIVE; the
// server may have set the key all the same.
func (l *Registration) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close ends the registration and deletes the key, as described at [Client.KeepAlive]. It waits
// for that, for a second at most. Close may be called more than once; it returns nil.
func (l *Registration) Close() error {
	l.cancel()
	<-l.ended
	return nil
}

// Stop ends the registration without deleting the key.
func (l *Registration) Stop() {
	l.mu.Lock()
	l.stays = true
	l.mu.Unlock()
	l.cancel()
	<-l.ended
}

// run keeps the key until the context ends. It looks for it first after the time next. sessions is the
// number of sessions before the last update.
func (l *Registration) run(ctx context.Context, next time.Duration, sessions uint64) {
	defer close(l.ended)
	defer l.cancel()
	c := l.client
	due := time.NewTimer(next)
	defer due.Stop()
	for l.wait(ctx, due.C, sessions) {
		sessions = c.follower.Counted.Sessions()
		due.Reset(l.every)
		soon, cancel := context.WithTimeout(ctx, l.every)
		there, err := l.there(soon)
		if err == nil && !there {
			err = l.set(soon)
		}
		cancel()
		if errors.Is(err, ErrUncertain) {
			sessions = 0 // set it again as soon as the client is ACTIVE
		}
		if ctx.Err() == nil {
			l.mu.Lock()
			l.err = err
			l.mu.Unlock()
		}
	}
	l.delete()
}

// wait waits until there may be something to do, at the latest when due says so. It returns
// false if the registration has ended.
func (l *Registration) wait(ctx context.Context, due <-chan time.Time, sessions uint64) bool {
	c := l.client
	var lost <-chan struct{}
	if l.lease != nil {
		lost = l.lease.Done()
	}
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
		case <-lost:
			return true
		case <-changed:
		case <-ctx.Done():
		case <-c.follower.Context().Done():
		}
	}
}

// there reports whether the key is in the map, and need not be set: it has the value, and the lease, which
// has not ended.
func (l *Registration) there(ctx context.Context) (ok bool, err error) {
	c := l.client
	l.mu.Lock()
	unset := l.unset
	l.mu.Unlock()
	if unset || l.lease == nil || l.lease.Err() != nil {
		return false, nil
	}
	if err := c.follower.KnowsLeases(ctx); err != nil {
		if errors.Is(err, ErrNoLeases) {
			return false, nil // refresh it, with a time to live
		}
		return false, cmp.Or(c.notActive(err), err)
	}
	if c.subtrees.Contains(bytesOf(l.key)) {
		return l.attached(l.lease) > 0, nil
	}
	_, err = c.ApplyIf(ctx, new(Batch), IfSequence(l.seq).On(l.key))
	if conflict := (*ConflictError)(nil); errors.As(err, &conflict) {
		return false, nil
	}
	return err == nil, err
}

// attached returns the sequence that the key has in the replica, or 0 if it is not attached to the lease there.
func (l *Registration) attached(to *Lease) (seq int64) {
	if now := l.client.live.Now(); now != nil {
		now.Store.View(bytesOf(l.key), func(r kvmsg.Record) {
			if id, ok := kvmsg.LeaseOf(r, kvmsg.TagProperties); ok && id == to.id {
				seq = r.Seq()
			}
		})
	}
	return seq
}

// set sets the key.
func (l *Registration) set(ctx context.Context) error {
	l.mu.Lock()
	value := l.value
	l.unset = len(value) == 0
	l.mu.Unlock()
	if len(value) == 0 {
		if l.lease != nil && l.lease.Err() != nil {
			l.unlease() // otherwise wait would return at once, again and again
		}
		return ErrEmptyValue
	}
	seq, err := l.attach(ctx, value)
	if errors.Is(err, ErrNoLeases) {
		seq, err = l.refresh(ctx, value)
	}
	if err != nil {
		l.mu.Lock()
		l.unset = true
		l.mu.Unlock()
		return err
	}
	l.seq = seq
	return nil
}

// attach sets the key with the lease, or with another one if that has ended.
func (l *Registration) attach(ctx context.Context, value []byte) (seq int64, err error) {
	for range 2 { // the server may know that it has ended, and the client not yet
		if l.lease == nil || l.lease.Err() != nil {
			l.unlease()
			if l.ttl < leastLease {
				return 0, ErrNoLeases
			}
			lease, err := l.client.Grant(ctx, l.ttl)
			if err != nil {
				return 0, err
			}
			l.lease = lease
		}
		seq, err = l.client.setLeased(ctx, l.key, value, append(slices.Clip(l.opts), WithLease(l.lease)))
		if !errors.Is(err, ErrLeaseEnded) && !errors.Is(err, ErrNoLeases) {
			break
		}
		l.unlease()
	}
	return seq, err
}

// unlease gives up the lease, if there is one, which ends at its time.
func (l *Registration) unlease() {
	if l.lease != nil {
		_ = l.lease.Close() // never fails
		l.lease = nil
	}
}

// refresh sets the key with a time to live, and returns the sequence of the update, or 0 if it does not come back.
func (l *Registration) refresh(ctx context.Context, value []byte) (seq int64, err error) {
	opts := append(slices.Clip(l.opts), WithTTL(l.ttl))
	if l.client.subtrees.Contains(bytesOf(l.key)) {
		w := ledger.NewWait()
		seq, err = l.client.updateWait(ctx, l.key, value, opts, w)
		l.number = max(l.number, w.Number())
		l.pending = err != nil && (l.pending || w.Number() > 0)
		return seq, err
	}
	return 0, l.client.Set(ctx, l.key, value, opts...)
}

// delete deletes the key at the end of the registration, unless another update than those of the
// registration has set it. Without it the key expires.
func (l *Registration) delete() {
	c := l.client
	l.mu.Lock()
	stays := l.stays
	l.mu.Unlock()
	lease := l.lease
	l.unlease()
	if stays || c.State() != StateActive {
		return
	}
	ctx, cancel := context.WithTimeout(c.follower.Context(), cmp.Or(l.last, goodbye))
	defer cancel()
	if lease != nil {
		l.deleteWith(ctx, lease)
	} else if !l.replaced() {
		_ = c.Delete(ctx, l.key)
	}
}

// deleteWith deletes the key with its lease.
func (l *Registration) deleteWith(ctx context.Context, lease *Lease) {
	var b Batch
	b.Delete(l.key)
	b.Delete(lease.key())
	for {
		_, err := l.client.ApplyIf(ctx, &b, IfSequence(l.seq).On(l.key))
		conflict := (*ConflictError)(nil)
		if !errors.As(err, &conflict) {
			return
		}
		// It may have an update of the registration that did not come back in time. What is outside of
		// the client's subtrees it would hear of with the next heartbeat only.
		if !l.client.subtrees.Contains(bytesOf(l.key)) || l.client.WaitFor(ctx, conflict.Sequence) != nil || l.attached(lease) <= l.seq {
			_ = lease.Revoke(ctx)
			return
		}
		l.seq = l.attached(lease)
	}
}

// replaced reports whether the key is gone, or has another update than the refreshes of the registration.
func (l *Registration) replaced() (replaced bool) {
	if l.seq <= 0 {
		return false
	}
	c := l.client
	found := false
	if now := c.live.Now(); now != nil {
		// A server with another map may have lower sequences, and one of another
		// implementation no UUIDs in its snapshots.
		found = now.Store.View(bytesOf(l.key), func(r kvmsg.Record) { replaced = r.Seq() != l.seq && !c.writer.Made(r, l.number) })
	}
	return replaced || !found && !l.pending
}
