package sockets

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// fanOut queues a message for all the peers, or, with the policy Block, for none
// if one of them is full, and returns that one. The mutex of the subscriptions
// is held.
//
// The message is put in wire form once. Small ones are copied to each peer; a
// large one all of them share.
func (p *publisher) fanOut(peers []*pipe, frames [][]byte) (full *pipe) {
	block := p.opts.FullPolicy == Block
	if len(peers) == 1 {
		q := peers[0]
		q.sub.room = hwm{}
		if q.out.offer(nil, frames) == isFull {
			if block {
				return q
			}
			p.overflow(q, 1)
		}
		return nil
	}
	size := 0
	for _, f := range frames {
		size += zmtp.FrameSize(len(f))
	}
	if block {
		for _, q := range peers {
			if !q.hasRoomFor(size) {
				return q
			}
		}
	}
	if size < lendFrom {
		p.shared = zmtp.AppendMessage(p.shared[:0], frames...)
		for _, q := range peers {
			if q.out.offerShared(p.shared, nil, block) == isFull {
				p.overflow(q, 1)
			}
		}
		return nil
	}
	chunk := buf.Get(size)
	defer chunk.Release()
	wire := zmtp.AppendMessage(chunk.Data()[:0:size], frames...)
	for _, q := range peers {
		if q.out.offerShared(wire, chunk, block) == isFull {
			p.overflow(q, 1)
		}
	}
	return nil
}

// SendBatch publishes messages of one frame each, which it copies, each under its
// own topic, and returns how many of them were published: all, or fewer with the
// error that ended the wait for room, as with Send. Peers that subscribed to
// everything share the copy. Queues are checked once for as many messages as go
// together, up to half a megabyte, not for each: a queue may get that much above
// its high-water mark.
func (p *publisher) SendBatch(ctx context.Context, bodies [][]byte) (sent int, err error) {
	if err := p.checkEach(bodies); err != nil {
		return 0, err
	}
	for sent < len(bodies) {
		if p.opts.WaitSubscriber {
			if err := p.Send(ctx, bodies[sent]); err != nil {
				return sent, err
			}
			sent++
			continue
		}
		n, size := 0, 0
		for _, b := range bodies[sent:] {
			if n > 0 && size+zmtp.FrameSize(len(b)) > fullStage {
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

// sendPart publishes messages of one frame each that have size octets in wire
// form.
func (p *publisher) sendPart(ctx context.Context, bodies [][]byte, size int) error {
	chunk := buf.Get(size)
	defer chunk.Release()
	wire := chunk.Data()[:0:size]
	for _, b := range bodies {
		wire = zmtp.AppendFrame(wire, b, false)
	}
	return p.sendWire(ctx, wire, len(bodies), nil, chunk)
}

// hasRoomFor says that the peer has room for a message of so many octets, and
// reckons with it. Only publishing fills the queues of a publisher, and the
// mutex of the subscriptions is held: room that was there once needs no second
// look until it is used up.
func (q *pipe) hasRoomFor(octets int) bool {
	room := &q.sub.room
	if room.messages <= 0 || room.octets <= 0 {
		if *room = q.out.roomLeft(); room.messages <= 0 || room.octets <= 0 {
			return false
		}
	}
	room.messages--
	room.octets -= octets
	return true
}

// roomLeft returns how much the outbox has room for, without bounds once it has
// ended. While there is none, whoever takes what is queued will tell.
func (o *outbox) roomLeft() hwm {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.admit(nil) {
	case isFull:
		return hwm{}
	case isEnded:
		return hwm{unbounded, unbounded}
	}
	left := hwm{
		o.limits.messages - o.queue.messages - o.held.messages,
		o.limits.octets - o.queue.octets - o.held.octets,
	}
	if left.octets <= 0 { // an empty queue takes one message of any size
		left = hwm{1, 1}
	}
	return left
}

// offerShared appends a message that several peers get: by copy, or lent if it
// has an owner. Where room was found before, it is not looked for again.
func (o *outbox) offerShared(wire []byte, owner Owner, roomy bool) verdict {
	o.mu.Lock()
	v := o.admit(nil)
	if v == accepted || v == isFull && roomy {
		v = accepted
		o.enter(wire, 1, owner)
		o.rouse()
	}
	o.mu.Unlock()
	return v
}

// overflow does what the policy demands for a peer that has no room. The mutex
// of the subscriptions is held, so the peer, as long as it is subscribed, is
// connected, or its connection has just ended: it takes the same mutex to
// leave.
func (p *publisher) overflow(q *pipe, messages int) {
	q.out.countDrops(messages)
	if p.opts.FullPolicy == Disconnect {
		if peer := q.peer.Load(); peer != nil {
			peer.conn.close(ErrSlowPeer)
		}
	}
}
