package fanout

import (
	"math"

	"clustermap/internal/queue"
)

// Each queue of a publisher has a bound of its own, and Settings.Total
// bounds all of them together. To add them up takes a look at every queue, so that
// is done only when enough bytes have been queued since the last time to reach the
// bound: Publisher.room counts them down.
//
// What a writer has taken and not written yet is still held for its peer, and counts. The
// peer that holds most is evicted first: with Disconnect its connection ends; with Drop its
// queue is emptied, and if the peer still holds most with what its writer has taken, which
// nobody can take back, its connection ends, too. Peers that follow the log of a
// group share its bytes: these count once, for the peer that has read least. With
// Block there is no such bound, since no message may be lost.

// release unlocks the mutex after messages were queued. Before
// that it enforces the bound on all queues together.
func (p *Publisher) release() {
	if p.room > 0 {
		p.Unlock()
		return
	}
	lost := p.shed()
	p.Unlock()
	for i := range lost { // with no lock held: the Release method of an Owner is the application's code
		lost[i].Drop()
	}
}

// shed evicts the peers that hold most until all together are within the bound, and returns
// their queues. The mutex must be held.
func (p *Publisher) shed() (lost []queue.Wire) {
	if p.Policy == Block {
		p.room = math.MaxInt64
		return nil
	}
	limit := p.Total
	for {
		sum, worst := p.longest()
		if sum <= limit || worst == nil {
			p.room = max(limit-sum, limit/totalStep, 1)
			return lost
		}
		lost = append(lost, p.evict(worst))
	}
}

// longest returns the bytes that all peers hold, and the peer that holds most, or nil if
// none holds any. Memory that queues share counts for each of them, except in
// a log, so the sum may not fit in an int. The mutex must be held.
func (p *Publisher) longest() (sum int64, worst *Subscriber) {
	most := 0
	add := func(q *Subscriber) {
		if q.evicted {
			return
		}
		n := q.out.Status().Held()
		sum += int64(n)
		if n > most {
			most, worst = n, q
		}
	}
	for _, g := range p.all {
		if g.log != nil {
			if o := g.log.First(); o != nil {
				add(subscriberOf(o))
			}
		}
		for _, q := range g.apart {
			add(q)
		}
	}
	return sum, worst
}

// evict empties a peer's queue, and with Disconnect, or if the queue is empty, ends its
// connection. It returns the content of the queue. The mutex must be held.
func (p *Publisher) evict(q *Subscriber) queue.Wire {
	p.separate(q)
	lost := q.out.Empty()
	if p.Policy == Disconnect || lost.Bytes() == 0 {
		p.expel(q)
	}
	return lost
}

// expel ends the connection of a peer that is too slow.
func (p *Publisher) expel(q *Subscriber) {
	q.evicted = true
	if q.link != nil {
		q.link.Disconnect(queue.ErrSlowPeer)
	}
}
