package sockets

import "math"

// A publisher's queues are bounded each by itself, and all of them together by
// Options.SendTotalBytes. Reckoning the sum takes a look at every queue, so it is
// done only when as much has been queued as could have exceeded the bound since the
// last time: the publisher counts that down in publisher.room.
//
// The peer with most before it goes first: with the policy Disconnect its
// connection ends, with Drop it loses what is queued for it. In the log of a group
// the peers share the bytes, which count once, with the one that has read least. With Block
// there is no such bound: nobody may lose anything.

// totalStep is the part of the bound that may be queued between two reckonings even
// if little is left of it.
const totalStep = 16

// unlock releases the mutex of the subscriptions after messages were queued, and
// sees to the bound on all queues together.
func (p *publisher) unlock() {
	if p.room > 0 {
		p.subs.Unlock()
		return
	}
	lost := p.relieve()
	p.subs.Unlock()
	for i := range lost { // not before: an owner's Release is code that we do not know
		lost[i].clear()
		lost[i].rest()
	}
}

// relieve takes from those who are furthest behind until the queues are within the
// bound together, and returns what was taken. The mutex of the subscriptions is held.
func (p *publisher) relieve() (lost []outqueue) {
	if p.opts.FullPolicy == Block {
		p.room = math.MaxInt64
		return nil
	}
	limit := int64(p.opts.SendTotalBytes)
	for {
		sum, worst := p.reckon()
		if sum <= limit || worst == nil {
			p.room = max(limit-sum, limit/totalStep, 1)
			return lost
		}
		lost = append(lost, p.evict(worst))
	}
}

// reckon returns the bytes in all queues, and the peer with most of them, if one
// has any. What is shared counts for each, so the sum may not fit in an int. The mutex of the subscriptions is held.
func (p *publisher) reckon() (sum int64, worst *pipe) {
	most := 0
	add := func(q *pipe) {
		if q.sub.evicted {
			return
		}
		n := q.out.pending(p.opts.FullPolicy == Disconnect)
		sum += int64(n)
		if n > most {
			most, worst = n, q
		}
	}
	for _, g := range p.subs.all {
		if g.log != nil {
			if q := g.log.first(); q != nil {
				add(q)
			}
		}
		for _, q := range g.apart {
			add(q)
		}
	}
	return sum, worst
}

// evict takes from a peer what is queued for it, and with the policy Disconnect ends
// its connection. The mutex of the subscriptions is held.
func (p *publisher) evict(q *pipe) outqueue {
	p.separate(q)
	lost := q.out.empty()
	if p.opts.FullPolicy == Disconnect {
		p.expel(q)
	}
	return lost
}

// expel ends the connection of a peer that is too slow.
func (p *publisher) expel(q *pipe) {
	q.sub.evicted = true
	if q.inproc() {
		// The connection ends in another goroutine, while the subscriber may make
		// room. What is sent from here on must not come.
		q.out.seal()
	}
	if peer := q.peer.Load(); peer != nil {
		peer.conn.close(ErrSlowPeer)
	}
}

// pending returns the bytes that wait for the writer, and with taken also those that
// it has in hand: they go with the connection.
func (o *outbox) pending(taken bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, n := o.backlog()
	if taken {
		n += o.taken
	}
	return n
}

// empty takes out what is queued, which counts as dropped.
func (o *outbox) empty() (lost outqueue) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost, o.queue = o.queue, outqueue{}
	o.drops += uint64(lost.messages)
	o.back = hwm{}
	if o.full {
		o.full = false
		o.room.wake()
	}
	o.settled()
	return lost
}
