package fanout

import (
	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// fanOut queues a message for all peers of the groups, of which there are
// several. With Block it queues the message for no peer if one of
// them is full, and returns that peer. The mutex is held.
//
// The message is encoded once. It is put once in the log of each group, for the
// peers that follow it. The other peers get a copy of a small message, and
// share a large one.
func (p *Publisher) fanOut(groups []*group, frames [][]byte) (full *Subscriber) {
	size := 0
	for _, f := range frames {
		size += zmtp.FrameSize(len(f))
	}
	for _, g := range groups {
		p.prepare(g)
	}
	if p.Policy == Block {
		for _, g := range groups {
			for _, q := range g.apart {
				if !q.hasRoomFor(size) {
					return q
				}
			}
		}
	}
	for _, g := range groups {
		g.gather()
	}
	if size >= queue.LendFrom {
		chunk := buf.Get(size)
		defer chunk.Release()
		p.share(groups, zmtp.AppendMessage(chunk.Data()[:0:size], frames...), chunk)
		return nil
	}
	if g := groups[0]; len(groups) == 1 && len(g.apart) == 0 && g.log != nil {
		p.room -= int64(size)
		g.log.Add(frames, size)
		return nil
	}
	p.shared = zmtp.AppendMessage(p.shared[:0], frames...)
	p.share(groups, p.shared, nil)
	return nil
}

// sendAlone is like fanOut for a single peer.
func (p *Publisher) sendAlone(q *Subscriber, frames [][]byte) (full *Subscriber) {
	if q.evicted {
		return nil
	}
	p.separate(q)
	q.room = queue.HWM{}
	for _, f := range frames {
		p.room -= int64(zmtp.FrameSize(len(f)))
	}
	if q.out.Offer(nil, nil, frames) == queue.Full {
		if p.Policy == Block {
			return q
		}
		p.overflow(q, 1)
	}
	return nil
}

// share queues a message for the groups: in their logs, and for the peers that
// do not follow them.
func (p *Publisher) share(groups []*group, wire []byte, owner queue.Owner) {
	roomy := p.Policy == Block // room was found before, and is not looked for again
	for _, g := range groups {
		p.room -= int64(len(wire)) * int64(len(g.apart))
		if g.log != nil {
			p.room -= int64(len(wire))
			g.log.AddWire(wire, 1, owner)
		}
		for _, q := range g.apart {
			if q.evicted {
				continue
			}
			if roomy {
				q.out.Force(nil, wire, 1, owner)
			} else if q.out.OfferWire(nil, wire, 1, owner) == queue.Full {
				p.overflow(q, 1)
			}
		}
	}
}

// prepare sets apart the followers of the group's log that have too much to
// read. If the group has a single peer, it sets that apart too, because a log
// is not worth it.
func (p *Publisher) prepare(g *group) {
	if g.log == nil {
		return
	}
	limits := p.Limits
	if g.size < 2 {
		limits = queue.HWM{}
	}
	for {
		o := g.log.Overtaken(limits)
		if o == nil {
			return
		}
		p.separate(subscriberOf(o))
	}
}

// separate makes a peer that follows a log get each message by itself. With
// Drop, under which a peer may take nothing for a long time, the peer
// gets a copy of its unread messages.
func (p *Publisher) separate(q *Subscriber) {
	if q.group.log == nil { // a peer follows only the log of its own group
		return
	}
	var scratch *queue.Wire
	if p.Policy == Drop {
		scratch = &p.rest
	}
	if q.out.Unfollow(scratch) {
		q.setApart()
	}
}

// firstFull prepares the groups, or only the peer alone if it is not nil, for
// more messages. With Block, it returns a peer that has no room.
func (p *Publisher) firstFull(groups []*group, alone *Subscriber) (full *Subscriber) {
	block := p.Policy == Block
	if alone != nil {
		p.separate(alone)
		if block && alone.out.Would() == queue.Full {
			return alone
		}
		return nil
	}
	for _, g := range groups {
		p.prepare(g)
		if !block {
			continue
		}
		for _, q := range g.apart {
			if q.out.Would() == queue.Full {
				return q
			}
		}
	}
	return nil
}

// offerWire queues, for a group, those of the encoded messages that it has
// subscribed to.
func (p *Publisher) offerWire(g *group, wire []byte, messages int, owner queue.Owner) {
	g.gather()
	switch {
	case g.log == nil:
	case g.whole:
		p.room -= int64(len(wire))
		g.log.AddWire(wire, messages, owner)
	default:
		p.room -= int64(queue.SizeOf(g.runs))
		g.log.AddRuns(wire, g.runs, g.count)
	}
	for _, q := range g.apart {
		p.offerWireAlone(q, wire, messages, owner)
	}
}

// offerWireAlone is like offerWire for a single peer.
func (p *Publisher) offerWireAlone(q *Subscriber, wire []byte, messages int, owner queue.Owner) {
	if q.evicted {
		return
	}
	q.room = queue.HWM{}
	g := q.group
	v := queue.Accepted
	if g.whole {
		p.room -= int64(len(wire))
		v = q.out.OfferWire(nil, wire, messages, owner)
	} else {
		messages = g.count
		size := queue.SizeOf(g.runs)
		p.room -= int64(size)
		if shared := p.copied.of(wire, g.runs, size); shared != nil {
			v = q.out.OfferWire(nil, shared.Data()[:size:size], messages, shared)
		} else {
			v = q.out.OfferRuns(wire, g.runs, messages)
		}
	}
	if v == queue.Full {
		p.overflow(q, messages)
	}
}

// overflow applies the policy to a peer that has no room. The mutex of the
// subscriptions is held. A subscribed peer is connected, or its connection has
// just ended: it takes the same mutex to leave.
func (p *Publisher) overflow(q *Subscriber, messages int) {
	q.out.CountDrops(messages)
	if p.Policy == Disconnect {
		p.expel(q)
	}
}
