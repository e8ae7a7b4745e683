package sockets

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// outbox is what is queued for one peer. Senders append wire bytes, or lend
// them; the connection's writer takes everything at once by exchanging the
// buffers, and is woken only when the outbox was empty.
type outbox struct {
	// What every message of a sender touches comes first: two cache lines.
	mu       sync.Mutex
	asleep   bool   // the writer waits on filled
	full     bool   // reached the high-water mark, and nothing was taken since
	sealed   bool   // no message is added any more; what is queued goes out
	ended    bool   // nothing will be sent any more
	conflate bool   // keep the last message only
	writing  bool   // the writer holds messages that it took
	taken    int    // bytes of these messages
	peer     *Peer  // the connection that takes what is queued, nil between connections
	start    func() // starts the writer; nil while there is one
	limits   hwm
	held     hwm // how much of what the writer has was: it still counts as queued
	queue    outqueue
	direct   *directWriter // senders write themselves; nil: they do not

	room   queue.Gate    // senders wait here while the outbox is full
	filled chan struct{} // wakes the writer, capacity 1

	// Guarded by mu as well.
	restart func() // what start becomes when the writer retires; nil if it does not
	slept   bool   // the writer has slept when retire looked last
	rest    []byte // of a message whose beginning a sender has written
	control []byte // PONGs and PINGs, which overtake messages and do not count as such
	back    hwm    // how much of queue was put back by a connection that broke
	drops   uint64
	emptied chan struct{} // what flushed returned; nil while nobody waits
	link    *half         // takes what is queued instead of a writer (inproc)
	follows follower      // goes out behind what is queued

	// The writer's own: what makes take bring up a PING, and that it did.
	beat   <-chan time.Time // nil without heartbeats
	ping   []byte
	pinged bool
}

// maxControl bounds queued PONGs: a peer that floods PINGs and does not read
// gets no more than this.
const maxControl = 4 << 10

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
	if o.ended || o.sealed || (to != nil && to != o.peer) {
		return isEnded
	}
	if o.full {
		return isFull
	}
	messages, bytes := o.queue.messages+o.held.messages, o.queue.bytes+o.held.bytes
	if messages >= o.limits.messages || (bytes >= o.limits.bytes && messages > 0) {
		o.full = true
		return isFull
	}
	return accepted
}

// launch has start called, which starts the connection's writer, when there is
// something to write for the first time, or now: many connections of a server
// never see that, and a goroutine's stack is most of what a silent one costs.
// The writer may retire, unless it is there forever. Senders write with direct,
// if it is not nil.
func (o *outbox) launch(start func(), direct *directWriter, now, forever bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.direct = direct
	if !forever {
		o.restart = start
	}
	if now || !o.queue.empty() || len(o.control) > 0 || o.full || o.behind() {
		start()
		return
	}
	o.start = start
}

// halt says that no writer is to be started any more.
func (o *outbox) halt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.start, o.restart, o.direct = nil, nil, nil
}

// rouse wakes whoever takes what is queued, if it sleeps or was not started yet.
// mu must be held.
func (o *outbox) rouse() {
	if o.asleep || o.start != nil {
		o.wake()
	}
}

// wake is rouse where it has something to do.
func (o *outbox) wake() {
	if o.start != nil {
		o.start()
		o.start = nil
		return
	}
	o.asleep = false
	if o.link != nil && !o.link.eager {
		o.link.notify()
		return
	}
	select {
	case o.filled <- struct{}{}:
	default:
	}
}

// begin returns the stage for so many bytes more. mu must be held.
func (o *outbox) begin(bytes int) *stage {
	if s := o.queue.stage; s != nil && len(s.bytes)+bytes <= fullStage {
		return s
	}
	return o.nextStage()
}

// nextStage returns another stage for what comes, if there is anything in the
// present one.
func (o *outbox) nextStage() *stage {
	if !o.conflate { // which needs all that is queued in one
		o.queue.endStage()
	}
	s := o.queue.begin()
	if o.queue.bytes >= fullStage && cap(s.bytes) < fullStage {
		// Enough is queued to fill a stage, so this one is likely to fill, too: it
		// need not grow step by step.
		s.bytes = make([]byte, 0, fullStage)
	}
	return s
}

// offer appends one message, by copy, for whatever connection comes or, if to
// is not nil, for that one alone.
func (o *outbox) offer(to *Peer, frames [][]byte) verdict { return o.offerBehind(to, nil, frames) }

// offerBehind is offer of a message that begins with frames which are in wire
// form already.
func (o *outbox) offerBehind(to *Peer, head []byte, frames [][]byte) verdict {
	o.mu.Lock()
	v := o.admit(to)
	if v == accepted {
		st := o.begin(len(head) + len(frames[0]))
		before := len(st.bytes)
		st.bytes = append(st.bytes, head...)
		st.bytes = zmtp.AppendMessage(st.bytes, frames...)
		o.commit(before, 1)
		if o.direct == nil || !o.writeDirect() {
			o.rouse()
		}
	}
	o.mu.Unlock()
	return v
}

// offerOne is offer of a message of one frame, and does without every call that
// it can: with small messages the sender is what limits their number.
func (o *outbox) offerOne(to *Peer, body []byte) verdict {
	o.mu.Lock()
	v := o.admit(to)
	if v == accepted {
		st := o.queue.stage
		if st == nil || len(st.bytes)+len(body) > fullStage {
			st = o.nextStage()
		}
		before := len(st.bytes)
		st.bytes = append(zmtp.AppendHeader(st.bytes, 0, len(body)), body...)
		if o.conflate {
			o.commit(before, 1)
		} else {
			o.queue.commit(before, 1)
		}
		o.rouse()
	}
	o.mu.Unlock()
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
	most := o.limits.bytes - o.queue.bytes - o.held.bytes
	for sent := 0; ; {
		// As many as go into one stage, without a look at the queue between.
		st := o.begin(len(bodies[sent]))
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

// enter appends messages in wire form, lent if they have an owner. mu must be
// held.
func (o *outbox) enter(wire []byte, messages int, owner Owner) {
	if owner != nil && !o.conflate {
		o.queue.lend(wire, messages, owner)
		return
	}
	st := o.begin(len(wire))
	before := len(st.bytes)
	st.bytes = append(st.bytes, wire...)
	o.commit(before, messages)
}

// offerRuns copies runs of wire bytes in one go; see Pub.SendWire.
func (o *outbox) offerRuns(wire []byte, runs []run, messages int) verdict {
	o.mu.Lock()
	v := o.admit(nil)
	if v == accepted {
		st := o.begin(bytesOf(runs))
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
	if o.ended {
		return true
	}
	if o.queue.bytes >= o.limits.bytes {
		return false
	}
	st := o.begin(len(frames))
	before := len(st.bytes)
	st.bytes = append(st.bytes, frames...)
	o.queue.commit(before, 0)
	o.rouse()
	return true
}

// precede is command for frames that go out before all that is queued, so many
// messages among them.
func (o *outbox) precede(frames []byte, messages int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return
	}
	o.prepend(frames)
	o.queue.messages += messages
	o.rouse()
}

// prepend puts bytes in front of those queued. mu must be held.
func (o *outbox) prepend(wire []byte) {
	st := o.queue.begin()
	st.bytes = append(wire[:len(wire):len(wire)], st.bytes...)
	o.queue.items = slices.Insert(o.queue.items, 0, outitem{size: len(wire)})
	o.queue.bytes += len(wire)
}

// pong queues the answer to a PING. When there is no room, the answers not yet
// taken are dropped for it: the newest answer is worth as much as all.
func (o *outbox) pong(context []byte) {
	o.mu.Lock()
	if !o.ended {
		if len(o.control) >= maxControl {
			o.control = o.control[:0]
		}
		o.control = zmtp.AppendPong(o.control, context)
		o.rouse()
	}
	o.mu.Unlock()
}

// hasRoom says whether an offer would be accepted or is moot.
func (o *outbox) hasRoom() bool {
	o.mu.Lock()
	v := o.admit(nil)
	o.mu.Unlock()
	return v != isFull
}

// waitRoom waits until an offer would be accepted or is moot.
func (o *outbox) waitRoom(ctx context.Context, to *Peer, done <-chan struct{}) error {
	return o.waitRoomWithin(ctx, to, done, nil)
}

// waitRoomWithin is waitRoom, but no longer than a limit allows.
func (o *outbox) waitRoomWithin(ctx context.Context, to *Peer, done <-chan struct{}, l *queue.Limit) error {
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

// take exchanges the queued bytes for the emptied buffers in q and control,
// waiting until there is something. What was taken before has been written. It
// reports false when gone closes first. roomy is called, without the lock, when
// a full outbox takes messages again.
func (o *outbox) take(q *outqueue, control *[]byte, gone <-chan struct{}, roomy func()) bool {
	o.mu.Lock()
	o.writing, o.taken, o.held = false, 0, hwm{}
	if o.beat != nil {
		select {
		case <-o.beat:
			o.heartbeat()
		default:
		}
	}
	for o.queue.empty() && len(o.control)+len(o.rest) == 0 && !o.behind() {
		if o.full {
			// Full of what was put back and is now written: nothing is
			// queued behind it whose taking would tell the senders.
			o.full = false
			o.room.Wake()
			o.mu.Unlock()
			roomy()
			o.mu.Lock()
			continue
		}
		q.rest()
		o.queue.rest()
		o.settled()
		o.asleep, o.slept = true, false
		filled := o.filled
		o.mu.Unlock()
		beat := false
		select {
		case <-filled:
			// Whoever else can run does so first, senders among them: what they
			// add goes out in the same write. With a thousand subscribers that
			// is a third more. Where nobody else can, it costs nothing.
			runtime.Gosched()
		case <-o.beat:
			beat = true
		case <-gone:
			o.mu.Lock()
			o.asleep = false
			o.mu.Unlock()
			return false
		}
		o.mu.Lock()
		if o.filled != filled { // retired
			o.mu.Unlock()
			return false
		}
		o.asleep = false
		if beat {
			o.heartbeat()
		}
	}
	o.queue, *q = *q, o.queue
	if l := o.follows.log; l != nil {
		l.hand(o, q, true)
	}
	o.writing = q.messages > 0 || len(o.rest) > 0
	o.taken = q.bytes
	if len(o.rest) > 0 {
		o.takeRest(control)
	} else {
		o.control, *control = (*control)[:0], o.control
	}
	o.back, o.held = hwm{}, o.back
	wasFull := o.full
	o.full = false
	if wasFull {
		o.room.Wake()
	}
	o.mu.Unlock()
	if wasFull {
		roomy()
	}
	return true
}

// heartbeat adds a PING to what is taken next, which is at once. mu must be held.
func (o *outbox) heartbeat() {
	o.control = append(o.control, o.ping...)
	o.pinged = true
}

// putBack returns messages that were taken but not written, in front of those
// queued since, for the next connection.
func (o *outbox) putBack(wire []byte, messages int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.peer, o.control, o.rest = nil, nil, nil
	o.writing, o.taken, o.held = false, 0, hwm{}
	if len(wire) > 0 && !o.ended {
		o.prepend(wire)
		o.queue.messages += messages
		o.back = hwm{messages, len(wire)}
	}
	o.settled()
}

// discard drops what is queued: its peer is gone and will not come back as the
// same one.
func (o *outbox) discard() {
	o.mu.Lock()
	o.unfollow(nil)
	o.drops += uint64(o.queue.messages)
	o.peer = nil
	dropped := o.drop()
	o.mu.Unlock()
	dropped.clear()
	dropped.rest()
}

// end refuses everything from now on.
func (o *outbox) end() {
	o.mu.Lock()
	o.ended = true
	dropped := o.drop()
	o.mu.Unlock()
	dropped.clear()
	dropped.rest()
}

// drop empties the outbox and returns what was queued. mu must be held.
func (o *outbox) drop() (dropped outqueue) {
	o.unfollow(nil)
	dropped, o.queue = o.queue, outqueue{}
	o.control, o.rest = nil, nil
	o.back, o.held = hwm{}, hwm{}
	o.writing, o.taken, o.full = false, 0, false
	o.room.Wake()
	o.settled()
	return dropped
}

// seal refuses messages from now on; those that are queued go out.
func (o *outbox) seal() {
	o.mu.Lock()
	o.sealed = true
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
	messages, _ := o.backlog()
	return o.ended || o.link != nil || (messages == 0 && !o.writing && len(o.rest) == 0)
}

// settled closes the channel of flushed if the outbox is flushed. mu must be held.
func (o *outbox) settled() {
	if o.emptied != nil && o.isFlushed() {
		close(o.emptied)
		o.emptied = nil
	}
}
