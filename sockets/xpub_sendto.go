package sockets

// SendWireTo queues messages in wire form for one peer, as Batch.Peer told it,
// whatever that peer has subscribed to: for example what a new subscriber has
// missed. wire holds the given number of whole messages, one behind the other.
// The peer gets them in order with everything else that is sent to it.
//
// It never waits and drops nothing. The peer's high-water marks do not hold the
// messages back, but these count for whatever is sent afterwards, and for
// Options.SendTotalBytes. So a caller can hold a lock of its own while it sends,
// and bounds what it has under way: the owner is retained until the bytes are
// written or the connection has ended, however few they are, and until then they
// must not change. With a nil owner they are copied.
//
// It returns ErrUnroutable if the peer has disconnected, or is about to be because
// it was too slow. A peer that is nil or belongs to another socket is refused with
// ErrForeignPeer.
func (x *XPub) SendWireTo(peer *Peer, wire []byte, messages int, owner Owner) error {
	if err := x.open(); err != nil {
		return err
	}
	if !x.owns(peer) {
		return ErrForeignPeer
	}
	x.subs.Lock()
	q := peer.pipe
	if q.sub.peer != peer || q.sub.evicted {
		x.subs.Unlock()
		return ErrUnroutable
	}
	if len(wire) == 0 {
		x.subs.Unlock()
		return nil
	}
	x.separate(q)
	q.sub.room = hwm{}
	x.room -= int64(len(wire))
	sent := q.out.force(peer, wire, messages, owner)
	x.unlock()
	if !sent {
		return ErrUnroutable
	}
	return nil
}

// force appends messages in wire form for a connection, lent if they have an
// owner, even if the outbox is full. It reports false if the connection has ended.
func (o *outbox) force(to *Peer, wire []byte, messages int, owner Owner) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.admit(to) == isEnded {
		return false
	}
	o.enter(wire, messages, owner)
	o.rouse()
	return true
}
