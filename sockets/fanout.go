package sockets

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// fanOut queues a message for all the peers, those that subscribed to everything
// and some others, or, with the policy Block, for none if one of them is full, and
// returns that one. The mutex of the subscriptions is held.
//
// The message is put in wire form once, in the log for those that follow it. The
// others get small ones by copy; a large one all of them share.
func (p *publisher) fanOut(all, some []*pipe, frames [][]byte) (full *pipe) {
	switch {
	case len(all)+len(some) > 1:
	case len(all) == 1:
		return p.sendAlone(all[0], frames)
	default:
		return p.sendAlone(some[0], frames)
	}
	size := 0
	for _, f := range frames {
		size += zmtp.FrameSize(len(f))
	}
	if full := p.makeRoom(some, size); full != nil {
		return full
	}
	p.gather()
	if size < lendFrom && len(p.subs.apart)+len(some) == 0 {
		p.log.add(frames, size)
		return nil
	}
	if size < lendFrom {
		p.shared = zmtp.AppendMessage(p.shared[:0], frames...)
		p.share(some, p.shared, nil)
		return nil
	}
	chunk := buf.Get(size)
	defer chunk.Release()
	p.share(some, zmtp.AppendMessage(chunk.Data()[:0:size], frames...), chunk)
	return nil
}

// sendAlone is fanOut for a single peer.
func (p *publisher) sendAlone(q *pipe, frames [][]byte) (full *pipe) {
	p.separate(q)
	q.sub.room = hwm{}
	if q.out.offer(nil, frames) == isFull {
		if p.opts.FullPolicy == Block {
			return q
		}
		p.overflow(q, 1)
	}
	return nil
}

// share queues a message for those that follow the log, for those that do not,
// and for some others.
func (p *publisher) share(some []*pipe, wire []byte, owner Owner) {
	p.log.addWire(wire, 1, owner)
	roomy := p.opts.FullPolicy == Block
	for _, peers := range [...][]*pipe{p.subs.apart, some} {
		for _, q := range peers {
			if q.out.offerShared(wire, owner, roomy) == isFull {
				p.overflow(q, 1)
			}
		}
	}
}

// makeRoom sets apart the followers of the log that have too much to read. With
// the policy Block, it returns a peer that has no room for a message of so many
// octets, of those apart and some others.
func (p *publisher) makeRoom(some []*pipe, octets int) (full *pipe) {
	p.setFullApart()
	if p.opts.FullPolicy != Block {
		return nil
	}
	for _, peers := range [...][]*pipe{p.subs.apart, some} {
		for _, q := range peers {
			if !q.hasRoomFor(octets) {
				return q
			}
		}
	}
	return nil
}

// setFullApart sets apart the followers of the log that have too much to read.
func (p *publisher) setFullApart() {
	limits := hwm{p.opts.SendHWM, p.opts.SendHWMOctets}
	for {
		q := p.log.overtaken(limits)
		if q == nil {
			return
		}
		p.separate(q)
	}
}

// separate has a peer that follows the log get each message alone. With the policy
// Drop, under which a peer may take nothing for long, it gets a copy of what it has
// not read.
func (p *publisher) separate(q *pipe) {
	var scratch *outqueue
	if p.opts.FullPolicy == Drop {
		scratch = &p.rest
	}
	q.out.mu.Lock()
	followed := q.out.follows.log != nil
	q.out.unfollow(scratch)
	q.out.mu.Unlock()
	if followed {
		p.subs.setApart(q)
	}
}

// gather has those follow the log that are apart and have nothing queued.
func (p *publisher) gather() {
	for i := len(p.subs.apart) - 1; i >= 0; i-- {
		if q := p.subs.apart[i]; !q.sub.alone && q.follow(&p.log) {
			p.subs.unsetApart(q)
		}
	}
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
