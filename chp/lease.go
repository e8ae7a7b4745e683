package chp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// ErrNoLeases is returned by [Client.Grant], and for updates WithLease, if the server knows no
// leases: it is of another implementation, or an earlier version. Nothing is sent then.
var ErrNoLeases = follow.ErrNoLeases

// ErrLeaseEnded is returned for an update WithLease whose lease has ended, and then nothing was changed; and by
// [Lease.Err] if a lease has ended without Revoke or Close.
var ErrLeaseEnded = errors.New("chp: the lease has ended")

// errLeaseClosed is that of a lease that was given up.
var errLeaseClosed = errors.New("chp: the lease is closed")

// errLeaseBatch is returned for updates that must be made under a condition.
var errLeaseBatch = errors.New("chp: Apply and ApplySync attach no keys to leases: see ApplyIf and ApplyEach")

// errLeaseTime is returned for a time to live that a lease cannot have.
var errLeaseTime = &kvmsg.MessageError{Reason: kvmsg.ReasonTTL, Detail: "the time to live of a lease is from 100ms to ten years"}

// Lease is a time for which its holder answers for some keys: when the lease ends, because it is not renewed or by
// Revoke, the server deletes all of them as one transaction, with CauseExpired. See [Client.Grant].
//
// All methods are safe for concurrent use.
type Lease struct {
	c    *Client
	id   kvmsg.LeaseID
	ttl  time.Duration
	done chan struct{}

	// Guarded by leases.mu of the client.
	when   [2]time.Time // see byDeadline
	places [2]int       // in the heaps
	err    error        // once done is closed
}

// Grant gives the client a lease, which it renews each third of the time to live, until Revoke, Close, or
// Close of the client. Any number of leases that are due together, and any number of keys that are attached
// to them, are renewed by one message for 1,024 leases; that publishes nothing.
//
// Keys are attached with [WithLease]. They last as long as the lease; another update of a key without the
// lease takes it away from it.
//
// The holder knows before anybody else that a lease may have ended: [Lease.Done] is closed at
// [Lease.Deadline], nine tenths of the time to live after the last renewal that the server has confirmed was sent,
// while the server counts all of it from when that arrived. A server that takes over in a pair, is started with its log, or was
// stopped for a while gives each lease all of its time again, after ServerOptions.ExpiryGrace. If both
// servers of a pair are active because the network separates them, each has the leases of its own side.
//
// Whoever knows the identity of a lease can revoke it, as `chp lease revoke` does: then the holder hears of it
// at its next renewal.
//
// The clock of this computer may stand still while it is suspended. What must not be done after the end of a
// lease carries the sequence of an attached key, and whoever does it refuses a lower one than
// it has seen.
//
// The time to live is at least 100ms. Grant waits until the client is ACTIVE. Its errors are those of SetIf, and
// ErrNoLeases.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (*Lease, error) {
	id, p, err := newLease(ttl)
	if err != nil {
		return nil, err
	}
	l := &Lease{c: c, id: id, ttl: ttl, done: make(chan struct{})}
	if !c.dialect.Full {
		return nil, ErrNoLeases
	}
	sent := time.Now()
	if _, err := c.propose(ctx, p); err != nil {
		return nil, err
	}
	if time.Since(sent) > ttl/3 { // it was not sent at once
		left := []time.Duration{0}
		var err error
		if sent, err = c.askLeases(ctx, wire.LeaseRenew, []kvmsg.LeaseID{l.id}, left); err != nil {
			return nil, err
		}
		if left[0] <= 0 {
			return nil, ErrLeaseEnded
		}
	}
	l.grant(sent)
	if err := c.leases.hold(c.follower.Context(), l); err != nil {
		return nil, err // the server ends it at its time
	}
	return l, nil
}

// newLease returns a new identity, and the proposal of its lease.
func newLease(ttl time.Duration) (id kvmsg.LeaseID, p *proposal, err error) {
	if ttl < leastLease || ttl > kvmsg.MaxTTL {
		return id, nil, errLeaseTime
	}
	rand.Read(id[:]) // never fails
	key := (&Lease{id: id}).key()
	var b Batch
	b.append(key, kvmsg.AppendLeaseTime(nil, ttl), []SetOption{WithTTL(ttl)})
	p = transaction(&b, []IfOption{IfAbsent().On(key)})
	p.leases = true
	return id, p, nil
}

// WithLease attaches the key of an update to a lease of the client. Apply and ApplySync refuse it. The update is made if the lease has not
// ended when the server orders it, as under a condition; otherwise the error is ErrLeaseEnded, and nothing is changed. Set
// with a lease waits for the outcome, as SetIf does. An update WithTTL ends at the first of both.
func WithLease(l *Lease) SetOption { return SetOption{lease: l.id, kind: optionLease} }

// WithLeaseID is WithLease for a lease of another client, by [Lease.ID]. Of an identity that is
// malformed no update is made.
func WithLeaseID(id string) SetOption {
	lease, ok := kvmsg.ParseLeaseID([]byte(id))
	o := SetOption{lease: lease, kind: optionLease}
	if !ok {
		o.lease = kvmsg.LeaseID{} // nobody has it
	}
	return o
}

// ID returns the identity of the lease: 32 hexadecimal digits. It is the end of the key of the lease,
// which is hidden from those who do not ask for it by the prefix $lease/.
func (l *Lease) ID() string { return hex.EncodeToString(l.id[:]) }

func (l *Lease) key() string { return string(kvmsg.AppendLeaseKey(nil, l.id)) }

// String returns the identity of the lease.
func (l *Lease) String() string { return "chp.Lease(" + l.ID() + ")" }

// Format prints the result of String for every verb: other fields of a lease change
// while it runs.
func (l *Lease) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, l.String()) }

// TTL returns the time to live of the lease.
func (l *Lease) TTL() time.Duration { return l.ttl }

// Done returns a channel that is closed when the lease has ended, or may have, as far as the holder can know.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err returns nil before Deadline, and then why the lease has ended: ErrLeaseEnded, ErrClosed if the client was
// closed, or another error after Revoke or Close of the lease. It looks at the clock, so it may say so an instant
// before Done is closed.
func (l *Lease) Err() error {
	l.c.leases.mu.Lock()
	defer l.c.leases.mu.Unlock()
	if l.err == nil && !time.Now().Before(l.when[byDeadline]) {
		return ErrLeaseEnded
	}
	return l.err
}

// Deadline returns until when the lease lasts at least, unless it is revoked. It moves with each renewal.
func (l *Lease) Deadline() time.Time {
	l.c.leases.mu.Lock()
	defer l.c.leases.mu.Unlock()
	return l.when[byDeadline]
}

// Revoke ends the lease, and returns when its keys are deleted: then the replica shows that soon. If the
// context ends first, the lease is not renewed any more, so it ends at the latest at its time.
func (l *Lease) Revoke(ctx context.Context) error {
	_ = l.Close()
	return l.c.revokeLease(ctx, l.id)
}

// Close ends the renewals. The lease ends at its time, with its keys. It returns nil.
func (l *Lease) Close() error {
	l.c.leases.mu.Lock()
	defer l.c.leases.mu.Unlock()
	l.c.leases.end(l, errLeaseClosed)
	return nil
}

// RevokeLease ends a lease of any client by its identity, as [Lease.Revoke] does. It is no error if there
// is none.
func (c *Client) RevokeLease(ctx context.Context, id string) error {
	lease, ok := kvmsg.ParseLeaseID([]byte(id))
	if !ok {
		return errLeaseID
	}
	return c.revokeLease(ctx, lease)
}

// RenewLease renews a lease of any client once, and returns its time to live, or 0 if there is none.
func (c *Client) RenewLease(ctx context.Context, id string) (ttl time.Duration, err error) {
	return c.askLease(ctx, wire.LeaseRenew, id)
}

// LeaseLeft returns how much time a lease of any client has left at the server, or 0 if there is none.
func (c *Client) LeaseLeft(ctx context.Context, id string) (left time.Duration, err error) {
	return c.askLease(ctx, wire.LeaseLook, id)
}

var errLeaseID = errors.New("chp: the identity of a lease has 32 hexadecimal digits, in lower case")

func (c *Client) askLease(ctx context.Context, kind wire.LeaseKind, id string) (time.Duration, error) {
	lease, ok := kvmsg.ParseLeaseID([]byte(id))
	if !ok {
		return 0, errLeaseID
	}
	left := []time.Duration{0}
	_, err := c.askLeases(ctx, kind, []kvmsg.LeaseID{lease}, left)
	return max(left[0], 0), err
}

func (c *Client) askLeases(ctx context.Context, kind wire.LeaseKind, ids []kvmsg.LeaseID, left []time.Duration) (sent time.Time, err error) {
	sent, err = c.follower.Leases(ctx, kind, ids, left)
	if err != nil && ctx.Err() != nil {
		err = c.explain(ctx.Err())
	}
	for i, id := range ids {
		if err == nil && left[i] == wire.LeaseDenied {
			err = leaseDenied("", kind, string(kvmsg.AppendLeaseKey(nil, id)))
		}
	}
	return sent, err
}

// leaseDenied returns the error of a client that may not do something with a lease.
func leaseDenied(name string, kind wire.LeaseKind, key string) error {
	verb := VerbWrite
	if kind == wire.LeaseLook {
		verb = VerbRead
	}
	return &AccessError{Name: name, Verb: verb, Key: key}
}

// renewLeases renews leases that the client holds.
func (c *Client) renewLeases(ctx context.Context, ids []kvmsg.LeaseID, left []time.Duration) (sent time.Time, err error) {
	return c.follower.Leases(ctx, wire.LeaseRenew, ids, left)
}

func (c *Client) revokeLease(ctx context.Context, id kvmsg.LeaseID) error {
	return untilGone(ctx, c.explain, func() (time.Duration, error) {
		left := []time.Duration{0}
		_, err := c.askLeases(ctx, wire.LeaseRevoke, []kvmsg.LeaseID{id}, left)
		return left[0], err
	})
}

// untilGone revokes a lease again and again, until its keys are deleted. explain says more of the error of a context.
func untilGone(ctx context.Context, explain func(error) error, revoke func() (left time.Duration, err error)) error {
	for pause := time.Duration(0); ; {
		if left, err := revoke(); err != nil || left == wire.LeaseGone {
			return err
		}
		pause = min(pause+5*time.Millisecond, 100*time.Millisecond)
		if !wake.Pause(ctx, pause) {
			return explain(ctx.Err())
		}
	}
}
