package sockets

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// fanOut queues a message for all peers of the groups, of which there are
// several. With PolicyBlock it queues the message for no peer if one of
// them is full, and returns that peer. The mutex of the subscriptions is held.
//
// The message is encoded once. It is put once in the log of each group, for the
// peers that follow it. The other peers get a copy of a small message, and
// share a large one.
func (p *publisher) fanOut(groups []*group, frames [][]byte) (full *pipe) {
	size := 0
	for _, f := range frames {
		size += zmtp.FrameSize(len(f))
	}
	for _, g := range groups {
		p.prepare(g)
	}
	if p.policy == PolicyBlock {
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
func (p *publisher) sendAlone(q *pipe, frames [][]byte) (full *pipe) {
	if q.sub.evicted {
		return nil
	}
	p.separate(q)
	q.sub.room = hwm{}
	for _, f := range frames {
		p.room -= int64(zmtp.FrameSize(len(f)))
	}
	if q.out.Offer(nil, nil, frames) == queue.Full {
		if p.policy == PolicyBlock {
			return q
		}
		p.overflow(q, 1)
	}
	return nil
}

// share queues a message for the groups: in their logs, and for the peers that
// do not follow them.
func (p *publisher) share(groups []*group, wire []byte, owner Owner) {
	roomy := p.policy == PolicyBlock // room was found before, and is not looked for again
	for _, g := range groups {
		p.room -= int64(len(wire)) * int64(len(g.apart))
		if g.log != nil {
			p.room -= int64(len(wire))
			g.log.AddWire(wire, 1, owner)
		}
		for _, q := range g.apart {
			if q.sub.evicted {
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
func (p *publisher) prepare(g *group) {
	if g.log == nil {
		return
	}
	limits := p.limits
	if g.size < 2 {
		limits = hwm{}
	}
	for {
		o := g.log.Overtaken(limits)
		if o == nil {
			return
		}
		p.separate(pipeOf(o))
	}
}

// separate makes a peer that follows a log get each message by itself. With
// PolicyDrop, under which a peer may take nothing for a long time, the peer
// gets a copy of its unread messages.
func (p *publisher) separate(q *pipe) {
	if q.sub.group.log == nil { // a peer follows only the log of its own group
		return
	}
	var scratch *queue.Wire
	if p.policy == PolicyDrop {
		scratch = &p.rest
	}
	if q.out.Unfollow(scratch) {
		q.setApart()
	}
}

// crowded prepares the groups, or only the peer alone if it is not nil, for
// more messages. With PolicyBlock, it returns a peer that has no room.
func (p *publisher) crowded(groups []*group, alone *pipe) (full *pipe) {
	block := p.policy == PolicyBlock
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
func (p *publisher) offerWire(g *group, wire []byte, messages int, owner Owner) {
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
func (p *publisher) offerWireAlone(q *pipe, wire []byte, messages int, owner Owner) {
	if q.sub.evicted {
		return
	}
	q.sub.room = hwm{}
	g := q.sub.group
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

// SendBatch publishes each element of bodies as a message of one frame, which
// is its own topic. It copies the bodies. It waits like Send and returns the
// number of messages published, which is len(bodies) unless the error is not
// nil.
//
// SendBatch is more efficient than calling Send for each message. It checks the
// queues once for each run of messages, of up to 512 KiB, so a queue may exceed
// its high-water mark by that much.
func (p *publisher) SendBatch(ctx context.Context, bodies [][]byte) (sent int, err error) {
	if err := p.checkEach(bodies); err != nil {
		return 0, err
	}
	for sent < len(bodies) {
		if p.opts().WaitSubscriber {
			if err := p.Send(ctx, bodies[sent]); err != nil {
				return sent, err
			}
			sent++
			continue
		}
		n, size := 0, 0
		for _, b := range bodies[sent:] {
			if n > 0 && size+zmtp.FrameSize(len(b)) > queue.FullStage {
				break
			}
			size += zmtp.FrameSize(len(b))
			n++
		}
		if err := p.sendPart(ctx, bodies[sent:sent+n], size); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// sendPart publishes messages of one frame each, of size bytes in wire form.
func (p *publisher) sendPart(ctx context.Context, bodies [][]byte, size int) error {
	chunk := buf.Get(size)
	defer chunk.Release()
	wire := chunk.Data()[:0:size]
	for _, b := range bodies {
		wire = zmtp.AppendFrame(wire, b, false)
	}
	return p.sendWire(ctx, wire, len(bodies), nil, chunk)
}

// hasRoomFor reports whether the peer has room for a message of the given size,
// and reserves it. Only publishing fills the queues of a publisher, and the
// mutex of the subscriptions is held: so room that was found once need not be
// checked again until it is used up.
func (q *pipe) hasRoomFor(bytes int) bool {
	room := &q.sub.room
	if room.Messages <= 0 || room.Bytes <= 0 {
		if *room = q.out.Left(); room.Messages <= 0 || room.Bytes <= 0 {
			return false
		}
	}
	room.Messages--
	room.Bytes -= bytes
	return true
}

// overflow applies the policy to a peer that has no room. The mutex of the
// subscriptions is held. A subscribed peer is connected, or its connection has
// just ended: it takes the same mutex to leave.
func (p *publisher) overflow(q *pipe, messages int) {
	q.out.CountDrops(messages)
	if p.policy == PolicyDisconnect {
		p.expel(q)
	}
}
