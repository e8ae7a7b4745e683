package queue

import (
	"context"
	"encoding/binary"
	"math"
	"sync"

	"clustermap/zmtp"
)

// Outbox is the queue of messages for one peer. In the order in which they go out, its
// parts are the head, the queue, and the unread messages of the log that the peer follows
// (see Log).
//
// Senders append wire bytes to the queue, or lend them. One drain takes everything
// at once, by exchanging the queue for an empty one: the writer of a connection, or
// over inproc the socket at the other end. See drainState for when it is at work. The
// messages that it has taken are its own until it takes again, or puts them back.
//
// mu guards all fields but Of.
type Outbox struct {
	// The fields that every message of a sender touches come first: two cache lines.
	mu       sync.Mutex
	drain    drainState
	life     life
	full     bool  // reached the high-water mark, and nothing was taken since
	conflate bool  // keep the last message only
	linked   bool  // the drain is a socket of this process
	conn     *Conn // the connection that takes the messages, nil between connections
	limits   HWM
	held     HWM // messages that the drain has taken and that still count as queued
	queue    Wire
	direct   Direct // how senders write themselves

	room    Gate   // senders wait here while the outbox is full
	kicks   uint64 // calls of Kick, and changes of limits
	shares  shares // the parts of limits
	waker   waker  // of the drain
	taken   taken  // by the drain
	head    head
	follows follower
	drops   uint64
	emptied chan struct{} // the channel that Flushed returned; nil without one

	Of any // for callers that find the outbox in a log; see fanout.Subscriber
}

// life says whether an outbox takes messages.
type life uint8

const (
	living life = iota
	sealed      // it takes no more, and the queued messages go out
	dead        // nothing goes out any more
)

// Verdict is the answer to an offer.
type Verdict uint8

const (
	Accepted Verdict = iota
	Full
	Ended
)

// Init sets the high-water mark. With conflate the outbox keeps the last message only,
// and has none.
func (o *Outbox) Init(limits HWM, conflate bool) {
	o.waker.filled = make(chan struct{}, 1)
	if conflate {
		limits = HWM{Unbounded, Unbounded}
	}
	o.shares.own, o.limits, o.conflate = limits, limits, conflate
}

// SetLimits changes the high-water mark, with Link only the part that is not the
// other socket's, and what MarkFull has said. It reports whether a full outbox may take
// messages again.
func (o *Outbox) SetLimits(limits HWM) (roomy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conflate {
		return false
	}
	o.shares.own = limits
	return o.relimit()
}

// SetFarLimits is SetLimits for the other socket's part. It does nothing before Link.
func (o *Outbox) SetFarLimits(limits HWM) (roomy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conflate || !o.linked || o.shares.far == limits {
		return false
	}
	o.shares.far = limits
	return o.relimit()
}

// shares are the high-water marks that an outbox has from this socket, and from the one at
// the other end if that is in this process; else far is zero.
type shares struct{ own, far HWM }

// relimit makes a change of the shares take effect, and reports whether the outbox was
// full. mu must be held.
func (o *Outbox) relimit() (roomy bool) {
	o.limits = o.shares.own
	if o.linked {
		o.limits = o.shares.own.plus(o.shares.far)
	}
	roomy = o.full
	o.full, o.queue.mark = false, 0 // the next offer looks again
	o.kick()
	return roomy
}

// Limits returns the high-water mark.
func (o *Outbox) Limits() HWM {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.limits
}

// Kick makes the calls of WaitRoom in progress return.
func (o *Outbox) Kick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kick()
}

// kick is Kick with mu held.
func (o *Outbox) kick() {
	o.kicks++
	o.room.WakeAll()
}

// Attach says that a connection takes the queued messages from here on.
func (o *Outbox) Attach(c *Conn) {
	o.mu.Lock()
	o.conn = c
	o.mu.Unlock()
}

// Part says that a connection has ended: messages for it alone are refused from here on.
// PutBack or Discard follows.
func (o *Outbox) Part(c *Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn == c {
		o.conn = nil
		o.room.WakeAll() // callers that wait with a message for that connection give up
	}
}

// Connected returns the connection that takes the messages, or nil if there is none.
func (o *Outbox) Connected() *Conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conn
}

// left returns the room below the high-water mark. mu must be held.
func (o *Outbox) left() HWM {
	return o.limits.Minus(o.held).Minus(HWM{o.queue.Messages, o.queue.Bytes()})
}

// admit says whether a message may be added: for the given connection only, if
// there is one. mu must be held.
func (o *Outbox) admit(to *Conn) Verdict {
	if o.life != living || (to != nil && to != o.conn) {
		return Ended
	}
	if o.full {
		return Full
	}
	messages, bytes := o.queue.Messages+o.held.Messages, o.queue.Bytes()+o.held.Bytes
	if messages >= o.limits.Messages || (bytes >= o.limits.Bytes && messages > 0) {
		o.full = true
		return Full
	}
	return Accepted
}

// commit counts messages appended to the stage since it had before bytes. mu must be
// held.
func (o *Outbox) commit(before, messages int) {
	o.queue.Messages += messages
	if o.conflate && messages > 0 {
		o.queue.keepLast(before)
	}
}

// allow lets OfferOne append messages without the checks of admit, as far as admit would
// accept them. Each change that makes one of the conditions false sets mark to 0. mu must
// be held.
func (o *Outbox) allow() {
	q := &o.queue
	if o.drain > working || o.life != living || o.full || o.conflate || q.stage == nil {
		return
	}
	q.mark = o.limits.Messages - o.held.Messages
	q.brim = min(cap(q.stage.Bytes), FullStage, len(q.stage.Bytes)+o.left().Bytes)
}

// Offer appends one message, by copy, for the present or next connection or, if to is not
// nil, for that one alone. It begins with the frames of lead, which are in wire form
// already, if there are any.
func (o *Outbox) Offer(to *Conn, lead []byte, frames [][]byte) Verdict {
	o.mu.Lock()
	v := o.admit(to)
	if v == Accepted && !o.writeLarge(lead, frames) {
		size := len(lead)
		for _, f := range frames {
			size += zmtp.FrameSize(len(f))
		}
		st, before := o.queue.begin(size, o.conflate)
		st.Bytes = append(st.Bytes, lead...)
		st.Bytes = zmtp.AppendMessage(st.Bytes, frames...)
		o.commit(before, 1)
		o.pass()
	}
	o.mu.Unlock()
	return v
}

// OfferOne is Offer for a message of one frame. Where allow permits it, it does without
// every call that it can: with small messages the sender limits their number.
func (o *Outbox) OfferOne(to *Conn, body []byte) Verdict {
	o.mu.Lock()
	if q := &o.queue; q.Messages < q.mark && (to == nil || to == o.conn) {
		at := len(q.stage.Bytes)
		if end := at + zmtp.FrameSize(len(body)); end <= q.brim {
			q.stage.Bytes = q.stage.Bytes[:end]
			frame := q.stage.Bytes[at:]
			if len(body) <= math.MaxUint8 {
				frame[0], frame[1] = 0, byte(len(body))
			} else {
				frame[0] = zmtp.FlagLong
				binary.BigEndian.PutUint64(frame[1:], uint64(len(body)))
			}
			copy(frame[len(frame)-len(body):], body)
			q.Messages++
			o.mu.Unlock()
			return Accepted
		}
	}
	v := o.offerLocked(to, body)
	o.mu.Unlock()
	return v
}

// offerLocked is OfferOne with every check. mu must be held.
func (o *Outbox) offerLocked(to *Conn, body []byte) Verdict {
	v := o.admit(to)
	if v == Accepted {
		st, before := o.queue.begin(zmtp.FrameSize(len(body)), o.conflate)
		st.Bytes = append(zmtp.AppendHeader(st.Bytes, 0, len(body)), body...)
		o.commit(before, 1)
		o.wake()
		o.allow()
	}
	return v
}

// OfferEach appends messages of one frame each, by copy, as many as there is
// room for, and returns their number.
func (o *Outbox) OfferEach(to *Conn, bodies [][]byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.admit(to) != Accepted {
		return 0
	}
	left := o.left()
	n, most := min(len(bodies), left.Messages), left.Bytes
	for sent := 0; ; {
		// As many as go into one stage, without a look at the queue between.
		st, before := o.queue.begin(zmtp.FrameSize(len(bodies[sent])), o.conflate)
		bytes, first := st.Bytes, sent
		for sent < n && (sent == first || len(bytes)+len(bodies[sent]) <= FullStage && len(bytes)-before < most) {
			bytes = zmtp.AppendFrame(bytes, bodies[sent], false)
			sent++
		}
		st.Bytes = bytes
		o.commit(before, sent-first)
		most -= len(bytes) - before
		if sent == n || most <= 0 {
			o.wake()
			return sent
		}
	}
}

// OfferWire appends messages in wire form: lent if they are large enough and
// have an owner, else by copy.
func (o *Outbox) OfferWire(to *Conn, wire []byte, messages int, owner Owner) Verdict {
	o.mu.Lock()
	v := o.admit(to)
	if v == Accepted {
		if len(wire) < LendFrom {
			owner = nil
		}
		o.enter(wire, messages, owner)
		o.pass()
	}
	o.mu.Unlock()
	return v
}

// Force is OfferWire even if the outbox is full, and lends wire of any size that has an
// owner.
func (o *Outbox) Force(to *Conn, wire []byte, messages int, owner Owner) Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.admit(to) == Ended {
		return Ended
	}
	o.enter(wire, messages, owner)
	o.wake()
	return Accepted
}

// enter appends messages in wire form, lent if they have an owner. mu must be
// held.
func (o *Outbox) enter(wire []byte, messages int, owner Owner) {
	if owner != nil && !o.conflate {
		owner.Retain()
		o.queue.lend(wire, messages, owner)
		return
	}
	st, before := o.queue.begin(len(wire), o.conflate)
	st.Bytes = append(st.Bytes, wire...)
	o.commit(before, messages)
}

// OfferRuns copies runs of wire bytes in one go; see hooks.SendWire.
func (o *Outbox) OfferRuns(wire []byte, runs []Run, messages int) Verdict {
	o.mu.Lock()
	v := o.admit(nil)
	if v == Accepted {
		st, before := o.queue.begin(SizeOf(runs), o.conflate)
		st.Bytes = AppendRuns(st.Bytes, wire, runs)
		o.commit(before, messages)
		o.pass()
	}
	o.mu.Unlock()
	return v
}

// Command appends command frames in order with the messages. The high-water
// mark in messages is not for them: subscriptions must not be lost. It reports
// false, and appends nothing, when the one in bytes is reached: a peer that
// takes nothing must not make the application's requests pile up for ever.
func (o *Outbox) Command(frames []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.life == dead {
		return true
	}
	if o.queue.Bytes() >= o.limits.Bytes {
		return false
	}
	o.enter(frames, 0, nil)
	o.wake()
	return true
}

// Would returns the verdict that an offer for the present or next connection would get.
func (o *Outbox) Would() Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.admit(nil)
}

// WaitRoom waits until an offer would be accepted or is pointless, until Kick is called, or
// until the high-water mark changes, but no longer than a limit allows, if it is not
// nil.
func (o *Outbox) WaitRoom(ctx context.Context, to *Conn, done <-chan struct{}, l *Limit) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for kicks := o.kicks; kicks == o.kicks && o.admit(to) == Full; {
		if err := o.room.Wait(ctx, &o.mu, done, l); err != nil {
			return err
		}
	}
	o.room.Wake() // pass it on: there is room for others too
	select {
	case <-done: // which is why the offer is pointless
		return ErrClosed
	default:
		return nil
	}
}

// CountDrops adds to the messages dropped for this peer.
func (o *Outbox) CountDrops(n int) {
	o.mu.Lock()
	o.drops += uint64(n)
	o.mu.Unlock()
}

// PutBack returns messages that were taken but not written, in front of those
// queued since, for the next connection. It clears l.
func (o *Outbox) PutBack(l *Load) {
	wire, messages := l.remaining()
	l.Clear()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disconnected()
	if len(wire) > 0 && o.life != dead {
		o.queue.prepend(wire, messages)
		o.queue.back = HWM{Messages: messages, Bytes: len(wire)}
	}
	o.settled()
}

// Discard drops the queued messages: their peer is gone and will not come back as the
// same one.
func (o *Outbox) Discard() {
	o.mu.Lock()
	o.disconnected()
	o.mu.Unlock()
	lost := o.Empty()
	lost.Drop()
}

// disconnected forgets the head of the connection that has ended, and the counts of the
// messages that its drain had taken. mu must be held.
func (o *Outbox) disconnected() {
	o.conn = nil
	o.room.WakeAll() // callers that wait with a message for that connection give up
	o.head.clear()
	o.taken, o.held = taken{}, HWM{}
}

// End refuses everything from now on, and drops the queued messages.
func (o *Outbox) End() {
	o.mu.Lock()
	o.life, o.queue.mark = dead, 0
	o.mu.Unlock()
	o.Discard()
}

// Empty removes and returns all queued messages, for the caller to drop, and counts
// them as dropped.
func (o *Outbox) Empty() (lost Wire) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unfollow(nil)
	lost, o.queue = o.queue, Wire{}
	o.drops += uint64(lost.Messages)
	o.full = false
	o.room.Wake()
	o.settled()
	return lost
}

// Seal refuses messages from now on; those that are queued go out.
func (o *Outbox) Seal() {
	o.mu.Lock()
	if o.life == living {
		o.life, o.queue.mark = sealed, 0
	}
	o.unfollow(nil)
	o.room.Wake()
	o.mu.Unlock()
}

// Flushed returns nil if no message is queued or being written, and otherwise a
// channel that is closed when that is so. Any number of callers may wait.
func (o *Outbox) Flushed() <-chan struct{} {
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

func (o *Outbox) isFlushed() bool {
	// The messages of a link are handed over at its end.
	if o.life == dead || o.linked {
		return true
	}
	messages, _ := o.backlog()
	return messages+o.head.messages+o.taken.Messages == 0
}

// settled closes the channel of Flushed if the outbox is flushed. mu must be held.
func (o *Outbox) settled() {
	if o.emptied != nil && o.isFlushed() {
		close(o.emptied)
		o.emptied = nil
	}
}

// Left returns how much room the outbox has, which is unbounded if it has
// ended. If there is none, the drain will signal it when it takes messages.
func (o *Outbox) Left() HWM {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.admit(nil) {
	case Full:
		return HWM{}
	case Ended:
		return HWM{Messages: Unbounded, Bytes: Unbounded}
	}
	if left := o.left(); left.Bytes > 0 {
		return left
	}
	return HWM{1, 1} // an empty queue takes one message of any size
}

// Status is the state of an outbox.
type Status struct {
	Messages, Bytes int    // queued, with the unread part of a log
	Taken           int    // bytes that the writer is writing: lost if the connection ends
	takenHead       int    // bytes of a head that it is writing
	Drops           uint64 // messages that were dropped
	Head            int    // bytes of the head
	Waiting         int    // calls of WaitRoom
	Idle            bool   // the drain has nothing to do
}

// Status returns the state.
func (o *Outbox) Status() (s Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s = Status{0, 0, o.taken.Bytes, o.taken.head, o.drops, len(o.head.bytes), o.room.Waiters(), o.drain > working}
	s.Messages, s.Bytes = o.backlog()
	return s
}

// Held returns the bytes that the outbox and its writer hold.
func (s Status) Held() int { return s.Bytes + s.Taken + s.takenHead + s.Head }

// MarkFull says that an outbox that holds at least the given bytes, of which there must be
// one, is full until some of them are taken. It reports whether that is so. Its owner is
// told of the room as for any full outbox.
func (o *Outbox) MarkFull(bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, held := o.backlog()
	if held += o.taken.Bytes; held < bytes || o.life != living {
		return false
	}
	o.full, o.queue.mark = true, 0
	return true
}
