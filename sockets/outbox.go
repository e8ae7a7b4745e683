package sockets

import (
	"context"
	"encoding/binary"
	"math"
	"sync"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// outbox is what is queued for one peer. In the order in which it goes out, that
// is the head, the queue, and what the peer has not read of the log that it
// follows (see wirelog).
//
// Senders append wire bytes to the queue, or lend them. One drain takes everything
// at once, by exchanging the queue for an empty one: the writer of a connection, or
// over inproc the socket at the other end. See drainState for when it is at work. What it
// has taken is its own until it takes again, or puts it back.
//
// mu guards all fields.
type outbox struct {
	// What every message of a sender touches comes first: two cache lines.
	mu       sync.Mutex
	drain    drainState
	life     life
	full     bool  // reached the high-water mark, and nothing was taken since
	conflate bool  // keep the last message only
	linked   bool  // the drain is a socket of this process
	peer     *Peer // the connection that takes what is queued, nil between connections
	limits   hwm
	held     hwm // how much of what the drain has taken still counts as queued
	queue    outqueue
	direct   *directWriter // senders write themselves; nil: they do not

	room   queue.Gate    // senders wait here while the outbox is full
	start  func()        // starts the drain when it is uncalled
	filled chan struct{} // wakes the drain when it sleeps; capacity 1

	head    head
	taken   hwm // what the drain has taken and not written yet, without PONGs
	follows follower
	drops   uint64
	emptied chan struct{} // what flushed returned; nil while nobody waits
}

// life says whether an outbox takes messages.
type life uint8

const (
	living life = iota
	sealed      // it takes no more, and what is queued goes out
	dead        // nothing goes out any more
)

// verdict is the answer to an offer.
type verdict uint8

const (
	accepted verdict = iota
	isFull
	isEnded
)

func (o *outbox) init(limits hwm) {
	o.room = queue.NewGate()
	o.filled = make(chan struct{}, 1)
	o.limits = limits
}

// attach says that a connection takes from here on what is queued.
func (o *outbox) attach(peer *Peer) {
	o.mu.Lock()
	o.peer = peer
	o.mu.Unlock()
}

// connected returns the connection that takes what is queued, if there is one.
func (o *outbox) connected() *Peer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.peer
}

// admit says whether a message may be added: for the given connection only, if
// there is one. mu must be held.
func (o *outbox) admit(to *Peer) verdict {
	if o.life != living || (to != nil && to != o.peer) {
		return isEnded
	}
	if o.full {
		return isFull
	}
	messages, bytes := o.queue.messages+o.held.messages, o.queue.bytes()+o.held.bytes
	if messages >= o.limits.messages || (bytes >= o.limits.bytes && messages > 0) {
		o.full = true
		return isFull
	}
	return accepted
}

// stage returns the stage to append so many bytes to. mu must be held.
func (o *outbox) stage(bytes int) *stage {
	if o.conflate && o.queue.stage != nil {
		return o.queue.stage // the message to drop and the one to keep are in one
	}
	return o.queue.begin(bytes)
}

// commit counts what was appended to the stage since it had so many bytes. mu must be
// held.
func (o *outbox) commit(before, messages int) {
	o.queue.messages += messages
	if o.conflate && messages > 0 {
		o.queue.keepLast(before)
	}
}

// allow lets offerOne append messages with no look at all that admit looks at, as far
// as that would accept them. What makes one of its conditions false sets mark to 0. mu
// must be held.
func (o *outbox) allow() {
	q := &o.queue
	if o.drain > working || o.life != living || o.full || o.conflate || q.stage == nil {
		return
	}
	room := o.limits.bytes - o.held.bytes - q.bytes()
	q.mark = o.limits.messages - o.held.messages
	q.brim = min(cap(q.stage.bytes), fullStage, len(q.stage.bytes)+room)
}

// offer appends one message, by copy, for whatever connection comes or, if to is not
// nil, for that one alone. It begins with the frames of lead, which are in wire form
// already, if there are any.
func (o *outbox) offer(to *Peer, lead []byte, frames [][]byte) verdict {
	o.mu.Lock()
	v := o.admit(to)
	if v == accepted {
		st := o.stage(len(lead) + len(frames[0]))
		before := len(st.bytes)
		st.bytes = append(st.bytes, lead...)
		st.bytes = zmtp.AppendMessage(st.bytes, frames...)
		o.commit(before, 1)
		if o.direct == nil || !o.writeDirect() {
			o.rouse()
		}
	}
	o.mu.Unlock()
	return v
}

// offerOne is offer of a message of one frame. Where allow permits it, it does without
// every call that it can: with small messages the sender limits their number.
func (o *outbox) offerOne(to *Peer, body []byte) verdict {
	o.mu.Lock()
	if q := &o.queue; q.messages < q.mark && (to == nil || to == o.peer) {
		at := len(q.stage.bytes)
		if end := at + zmtp.FrameSize(len(body)); end <= q.brim {
			q.stage.bytes = q.stage.bytes[:end]
			frame := q.stage.bytes[at:]
			if len(body) <= math.MaxUint8 {
				frame[0], frame[1] = 0, byte(len(body))
			} else {
				frame[0] = zmtp.FlagLong
				binary.BigEndian.PutUint64(frame[1:], uint64(len(body)))
			}
			copy(frame[len(frame)-len(body):], body)
			q.messages++
			o.mu.Unlock()
			return accepted
		}
	}
	v := o.offerLocked(to, body)
	o.mu.Unlock()
	return v
}

// offerLocked is offerOne with every check. mu must be held.
func (o *outbox) offerLocked(to *Peer, body []byte) verdict {
	v := o.admit(to)
	if v == accepted {
		st := o.stage(zmtp.FrameSize(len(body)))
		before := len(st.bytes)
		st.bytes = append(zmtp.AppendHeader(st.bytes, 0, len(body)), body...)
		o.commit(before, 1)
		o.rouse()
		o.allow()
	}
	return v
}

// offerEach appends messages of one frame each, by copy, as many as there is
// room for, and returns their number.
func (o *outbox) offerEach(to *Peer, bodies [][]byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.admit(to) != accepted {
		return 0
	}
	n := min(len(bodies), o.limits.messages-o.queue.messages-o.held.messages)
	most := o.limits.bytes - o.queue.bytes() - o.held.bytes
	for sent := 0; ; {
		// As many as go into one stage, without a look at the queue between.
		st := o.stage(len(bodies[sent]))
		before := len(st.bytes)
		bytes, first := st.bytes, sent
		for sent < n && (sent == first || len(bytes)+len(bodies[sent]) <= fullStage && len(bytes)-before < most) {
			bytes = zmtp.AppendFrame(bytes, bodies[sent], false)
			sent++
		}
		st.bytes = bytes
		o.commit(before, sent-first)
		most -= len(bytes) - before
		if sent == n || most <= 0 {
			o.rouse()
			return sent
		}
	}
}

// offerWire appends messages in wire form: lent if they are large enough and
// have an owner, else by copy.
func (o *outbox) offerWire(to *Peer, wire []byte, messages int, owner Owner) verdict {
	o.mu.Lock()
	v := o.admit(to)
	if v == accepted {
		if len(wire) < lendFrom {
			owner = nil
		}
		o.enter(wire, messages, owner)
		o.rouse()
	}
	o.mu.Unlock()
	return v
}

// force is offerWire even if the outbox is full, and lends whatever has an owner.
func (o *outbox) force(to *Peer, wire []byte, messages int, owner Owner) verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.admit(to) == isEnded {
		return isEnded
	}
	o.enter(wire, messages, owner)
	o.rouse()
	return accepted
}

// enter appends messages in wire form, lent if they have an owner. mu must be
// held.
func (o *outbox) enter(wire []byte, messages int, owner Owner) {
	if owner != nil && !o.conflate {
		owner.Retain()
		o.queue.lend(wire, messages, owner)
		return
	}
	st := o.stage(len(wire))
	before := len(st.bytes)
	st.bytes = append(st.bytes, wire...)
	o.commit(before, messages)
}

// offerRuns copies runs of wire bytes in one go; see Pub.SendWire.
func (o *outbox) offerRuns(wire []byte, runs []run, messages int) verdict {
	o.mu.Lock()
	v := o.admit(nil)
	if v == accepted {
		st := o.stage(bytesOf(runs))
		before := len(st.bytes)
		st.bytes = appendRuns(st.bytes, wire, runs)
		o.commit(before, messages)
		o.rouse()
	}
	o.mu.Unlock()
	return v
}

// command appends command frames in order with the messages. The high-water
// mark in messages is not for them: subscriptions must not be lost. It reports
// false, and appends nothing, when the one in bytes is reached: a peer that
// takes nothing must not make the application's requests pile up for ever.
func (o *outbox) command(frames []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.life == dead {
		return true
	}
	if o.queue.bytes() >= o.limits.bytes {
		return false
	}
	st := o.stage(len(frames))
	before := len(st.bytes)
	st.bytes = append(st.bytes, frames...)
	o.commit(before, 0)
	o.rouse()
	return true
}

// would says what the answer to an offer for whatever connection comes would be.
func (o *outbox) would() verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.admit(nil)
}

// waitRoom waits until an offer would be accepted or is moot, but no longer than a
// limit allows, if it is not nil.
func (o *outbox) waitRoom(ctx context.Context, to *Peer, done <-chan struct{}, l *queue.Limit) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.admit(to) == isFull {
		if err := o.room.Wait(ctx, &o.mu, done, l); err != nil {
			return err
		}
	}
	o.room.Wake() // pass it on: there is room for others too
	return nil
}

// countDrops adds to the messages dropped for this peer.
func (o *outbox) countDrops(n int) {
	o.mu.Lock()
	o.drops += uint64(n)
	o.mu.Unlock()
}

// putBack returns messages that were taken but not written, in front of those
// queued since, for the next connection.
func (o *outbox) putBack(wire []byte, messages int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disconnected()
	if len(wire) > 0 && o.life != dead {
		o.queue.prepend(wire, messages)
		o.queue.back = hwm{messages, len(wire)}
	}
	o.settled()
}

// discard drops what is queued: its peer is gone and will not come back as the
// same one.
func (o *outbox) discard() {
	o.mu.Lock()
	o.disconnected()
	o.mu.Unlock()
	lost := o.empty()
	lost.clear()
	lost.rest()
}

// disconnected forgets what was for the connection that has ended, and what its
// drain had taken. mu must be held.
func (o *outbox) disconnected() {
	o.peer = nil
	o.head.clear()
	o.taken, o.held = hwm{}, hwm{}
}

// end refuses everything from now on, and drops what is queued.
func (o *outbox) end() {
	o.mu.Lock()
	o.life, o.queue.mark = dead, 0
	o.mu.Unlock()
	o.discard()
}

// empty removes and returns all queued messages, for the caller to clear, and counts
// them as dropped.
func (o *outbox) empty() (lost outqueue) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unfollow(nil)
	lost, o.queue = o.queue, outqueue{}
	o.drops += uint64(lost.messages)
	o.full = false
	o.room.Wake()
	o.settled()
	return lost
}

// seal refuses messages from now on; those that are queued go out.
func (o *outbox) seal() {
	o.mu.Lock()
	if o.life == living {
		o.life, o.queue.mark = sealed, 0
	}
	o.unfollow(nil)
	o.room.Wake()
	o.mu.Unlock()
}

// flushed returns nil if no message is queued or being written, and otherwise a
// channel that is closed when that is so. Any number of callers may wait.
func (o *outbox) flushed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isFlushed() {
		return nil
	}
	if o.emptied == nil {
		o.emptied = make(chan struct{})
	}
	return o.emptied
}

func (o *outbox) isFlushed() bool {
	// What a link has queued is handed over at its end.
	if o.life == dead || o.linked {
		return true
	}
	messages, _ := o.backlog()
	return messages+o.head.messages+o.taken.messages == 0
}

// settled closes the channel of flushed if the outbox is flushed. mu must be held.
func (o *outbox) settled() {
	if o.emptied != nil && o.isFlushed() {
		close(o.emptied)
		o.emptied = nil
	}
}
