package collect

import (
	"time"

	"clustermap/chp/internal/rights"
	"clustermap/chp/internal/txn"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// bound returns the role of a peer, or nil if that may write everything.
func (c *Clients) bound(peer *sockets.Peer) *rights.Role {
	if c.o.Rights == nil {
		return nil
	}
	if role := c.o.Rights.Of(peer); !role.WritesAll() || !role.ReadsAll() {
		return role
	}
	return nil
}

// mayWrite returns kvmsg.ErrAccess if a client may not make an update.
func (c *Clients) mayWrite(role *rights.Role, r kvmsg.Record) error {
	key := r.Key()
	if role.MayWrite(key) {
		return nil
	}
	// Who may write anything may grant a lease, and end it, but not that of another one.
	if id, ok := kvmsg.LeaseOfKey(key); ok && role.WritesSome() && c.owns(role, id) {
		return nil
	}
	return kvmsg.ErrAccess
}

// mayAsk returns kvmsg.ErrAccess if a client may not make one of the updates of a request, or not know whether one
// of its conditions holds. It may know whether there is a lease, if that is its own.
func (c *Clients) mayAsk(role *rights.Role, r *txn.Request) error {
	var condition txn.Condition
	for rest := r.Conditions; len(rest) > 0; {
		rest, _ = condition.Next(rest) // it was checked
		if id, ok := kvmsg.LeaseOfKey(condition.Key); ok && c.owns(role, id) {
			continue
		}
		if !role.MayRead(condition.Key) {
			return kvmsg.ErrAccess
		}
	}
	for _, one := range r.Records() {
		if err := c.mayWrite(role, one); err != nil {
			return err
		}
		if role.WritesAll() || len(one.Props()) == 0 {
			continue
		}
		text, ok := kvmsg.Property(one.Props(), kvmsg.PropertyLease)
		if id, valid := kvmsg.ParseLeaseID(text); ok && valid && !c.owns(role, id) {
			return kvmsg.ErrAccess
		}
	}
	return nil
}

// owns reports whether a lease is that of a client, or there is none: its identity is random, so one that is
// about to be granted is known to its owner alone.
func (c *Clients) owns(role *rights.Role, id kvmsg.LeaseID) bool {
	name, ok := c.o.Owner(id)
	return !ok || name == role.Name()
}

// recheck removes from a batch what its client may not do any more: it was checked when it arrived.
func (c *Clients) recheck(b *hooks.Batch, peer *sockets.Peer) {
	role := c.bound(peer)
	if role == nil {
		return
	}
	wire, kept := b.Wire(), b.Spans()[:0]
	var told refusalNotice
	var request txn.Request
	for _, span := range b.Spans() {
		var err error
		m := wire[span.Start:span.End]
		if isRequest(span, wire) {
			err = c.check(&request, m, peer, role)
		} else if err = c.mayWrite(role, kvmsg.Record(m)); err != nil {
			told.add(c, peer, m, err)
		}
		if err == nil {
			kept = append(kept, span)
			continue
		}
		c.o.Refused(err)
	}
	told.send(c)
	b.SetSpans(kept)
}

// Pace returns how long to read no more of a client that has sent a batch (hooks.Pace). What is refused counts, too.
func (c *Clients) Pace(b *hooks.Batch) time.Duration {
	peer := (*sockets.Peer)(b.Peer())
	updates := b.Len()
	for _, span := range b.Spans() {
		if isRequest(span, b.Wire()) {
			updates += int(span.End-span.Start) / requestUpdate // about
		}
	}
	return c.o.Rights.Pace(peer, updates, buf.Extent(b.Spans()))
}
