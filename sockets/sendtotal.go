package sockets

import (
	"math"

	"clustermap/internal/queue"
)

// Each queue of a publisher has a bound of its own, and Options.SendTotalBytes
// bounds all of them together. To add them up takes a look at every queue, so that
// is done only when enough bytes have been queued since the last time to reach the
// bound: publisher.room counts them down.
//
// The peer with the longest queue is evicted first: with PolicyDisconnect its
// connection ends, with PolicyDrop its queue is emptied. Peers that follow the log of a
// group share its bytes: these count once, for the peer that has read least. With
// PolicyBlock there is no such bound, since no message may be lost.

// 1/totalStep of the bound is the least that may be queued between two additions,
// even if the bound is nearly reached.
const totalStep = 16

// unlock releases the mutex of the subscriptions after messages were queued. Before
// that it enforces the bound on all queues together.
func (p *publisher) unlock() {
	if p.room > 0 {
		p.subs.Unlock()
		return
	}
	lost := p.relieve()
	p.subs.Unlock()
	for i := range lost { // with no lock held: the Release method of an Owner is the application's code
		lost[i].Drop()
	}
}

// relieve evicts the peers with the longest queues until the queues together are
// within the bound, and returns their queues. The mutex of the subscriptions must
// be held.
func (p *publisher) relieve() (lost []queue.Wire) {
	if p.policy == PolicyBlock {
		p.room = math.MaxInt64
		return nil
	}
	limit := p.total
	for {
		sum, worst := p.reckon()
		if sum <= limit || worst == nil {
			p.room = max(limit-sum, limit/totalStep, 1)
			return lost
		}
		lost = append(lost, p.evict(worst))
	}
}

// reckon returns the bytes in all queues, and the peer with the longest queue, or
// nil if all are empty. Memory that queues share counts for each of them, except in
// a log, so the sum may not fit in an int. The mutex of the subscriptions must be
// held.
func (p *publisher) reckon() (sum int64, worst *pipe) {
	most := 0
	add := func(q *pipe) {
		if q.sub.evicted {
			return
		}
		s := q.out.Status()
		n := s.Bytes
		if p.policy == PolicyDisconnect {
			n += s.Taken
		}
		sum += int64(n)
		if n > most {
			most, worst = n, q
		}
	}
	for _, g := range p.subs.all {
		if g.log != nil {
			if o := g.log.First(); o != nil {
				add(pipeOf(o))
			}
		}
		for _, q := range g.apart {
			add(q)
		}
	}
	return sum, worst
}

// evict empties a peer's queue, and with PolicyDisconnect ends its connection.
// It returns the content of the queue. The mutex of the subscriptions must be held.
func (p *publisher) evict(q *pipe) queue.Wire {
	p.separate(q)
	lost := q.out.Empty()
	if p.policy == PolicyDisconnect {
		p.expel(q)
	}
	return lost
}

// expel ends the connection of a peer that is too slow.
func (p *publisher) expel(q *pipe) {
	q.sub.evicted = true
	if q.inproc() {
		// The connection ends in another goroutine, and meanwhile the subscriber
		// may make room. It must not get messages that are sent from now on.
		q.out.Seal()
	}
	if peer := q.peer.Load(); peer != nil {
		peer.conn.close(ErrSlowPeer)
	}
}
