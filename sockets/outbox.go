package sockets

import (
	"context"
	"sync"

	"clustermap/zmtp"
)

// outbox is what is queued for one peer. Senders append wire octets, or lend
// them; the connection's writer takes everything at once by exchanging the
// buffers, and is woken only when the outbox was empty.
type outbox struct {
	mu     sync.Mutex
	room   gate          // senders wait here while the outbox is full
	filled chan struct{} // wakes the writer, capacity 1
	limits hwm

	// Guarded by mu.
	queue   outqueue
	control []byte // PONGs, which overtake messages and do not count as such
	asleep  bool   // the writer waits on filled
	writing bool   // the writer holds octets that it took
	full    bool   // reached the high-water mark, and not yet below the low one
	ended   bool   // nothing will be sent any more
	drops   uint64
}

// outqueue is a sequence of whole messages: runs copied to the stage, and runs
// lent by an Owner, in the order of items.
type outqueue struct {
	stage    *stage // nil while nothing is copied
	items    []outitem
	messages int
	octets   int
}

// stage is a buffer that senders copy into. Stages are pooled, so that an idle
// connection holds none and a busy one does not allocate.
type stage struct{ octets []byte }

var stages = sync.Pool{New: func() any { return new(stage) }}

// keepStage is the largest stage that goes back to the pool.
const keepStage = 4 << 20

// outitem is the next size octets of the stage, or, with an owner, lent.
type outitem struct {
	size  int
	lent  []byte
	owner Owner
}

// lendFrom is the size from which lending a run is cheaper than copying it: a
// vectored write costs more for many small pieces than the copy does.
const lendFrom = 4 << 10

// maxControl bounds queued PONGs: a peer that floods PINGs and does not read
// gets no more than this.
const maxControl = 4 << 10

func (q *outqueue) empty() bool { return len(q.items) == 0 }

// begin returns the stage to append to, and its length.
func (q *outqueue) begin() (*stage, int) {
	if q.stage == nil {
		q.stage = stages.Get().(*stage)
	}
	return q.stage, len(q.stage.octets)
}

// commit enters what was appended to the stage since begin.
func (q *outqueue) commit(before, messages int) {
	n := len(q.stage.octets) - before
	if last := len(q.items) - 1; last >= 0 && q.items[last].owner == nil {
		q.items[last].size += n
	} else {
		q.items = append(q.items, outitem{size: n})
	}
	q.messages += messages
	q.octets += n
}

func (q *outqueue) lend(wire []byte, messages int, owner Owner) {
	owner.Retain()
	q.items = append(q.items, outitem{size: len(wire), lent: wire, owner: owner})
	q.messages += messages
	q.octets += len(wire)
}

// clear empties q, returns what was lent, and keeps the buffers for reuse.
func (q *outqueue) clear() {
	for i := range q.items {
		if o := q.items[i].owner; o != nil {
			o.Release()
		}
		q.items[i] = outitem{}
	}
	q.items = q.items[:0]
	if q.stage != nil {
		q.stage.octets = q.stage.octets[:0]
	}
	q.messages, q.octets = 0, 0
}

// rest gives the stage of an empty queue back to the pool.
func (q *outqueue) rest() {
	if q.stage != nil && cap(q.stage.octets) <= keepStage {
		stages.Put(q.stage)
	}
	q.stage = nil
}

// verdict is the answer to an offer.
type verdict uint8

const (
	accepted verdict = iota
	isFull
	isEnded
)

func (o *outbox) init(limits hwm) {
	o.room = newGate()
	o.filled = make(chan struct{}, 1)
	o.limits = limits
}

// admit says whether a message may be added. mu must be held.
func (o *outbox) admit() verdict {
	if o.ended {
		return isEnded
	}
	if o.full {
		return isFull
	}
	if o.queue.messages >= o.limits.messages || (o.queue.octets >= o.limits.octets && o.queue.messages > 0) {
		o.full = true
		return isFull
	}
	return accepted
}

// rouse wakes the writer if it sleeps. mu must be held.
func (o *outbox) rouse() {
	if o.asleep {
		o.asleep = false
		select {
		case o.filled <- struct{}{}:
		default:
		}
	}
}

// offer appends one message, by copy.
func (o *outbox) offer(frames [][]byte) verdict {
	o.mu.Lock()
	v := o.admit()
	if v == accepted {
		st, before := o.queue.begin()
		st.octets = zmtp.AppendMessage(st.octets, frames...)
		o.queue.commit(before, 1)
		o.rouse()
	}
	o.mu.Unlock()
	return v
}

// offerWire appends messages in wire form: lent if they are large enough and
// have an owner, else by copy.
func (o *outbox) offerWire(wire []byte, messages int, owner Owner) verdict {
	o.mu.Lock()
	v := o.admit()
	if v == accepted {
		if owner != nil && len(wire) >= lendFrom {
			o.queue.lend(wire, messages, owner)
		} else {
			st, before := o.queue.begin()
			st.octets = append(st.octets, wire...)
			o.queue.commit(before, messages)
		}
		o.rouse()
	}
	o.mu.Unlock()
	return v
}

// offerRuns copies runs of wire octets in one go; see Pub.SendWire.
func (o *outbox) offerRuns(wire []byte, runs []run, messages int) verdict {
	o.mu.Lock()
	v := o.admit()
	if v == accepted {
		st, before := o.queue.begin()
		for _, r := range runs {
			st.octets = append(st.octets, wire[r.start:r.end]...)
		}
		o.queue.commit(before, messages)
		o.rouse()
	}
	o.mu.Unlock()
	return v
}

// command appends a command frame in order with the messages, whatever the
// high-water mark: subscriptions must not be lost.
func (o *outbox) command(frame []byte) {
	o.mu.Lock()
	if !o.ended {
		st, before := o.queue.begin()
		st.octets = append(st.octets, frame...)
		o.queue.commit(before, 0)
		o.rouse()
	}
	o.mu.Unlock()
}

// pong queues the answer to a PING.
func (o *outbox) pong(context []byte) {
	o.mu.Lock()
	if !o.ended && len(o.control) < maxControl {
		o.control = zmtp.AppendPong(o.control, context)
		o.rouse()
	}
	o.mu.Unlock()
}

// hasRoom says whether an offer would be accepted or is moot.
func (o *outbox) hasRoom() bool {
	o.mu.Lock()
	v := o.admit()
	o.mu.Unlock()
	return v != isFull
}

// waitRoom waits until the outbox is no longer full, or has ended.
func (o *outbox) waitRoom(ctx context.Context, done <-chan struct{}) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.admit() == isFull {
		if err := o.room.wait(ctx, &o.mu, done); err != nil {
			return err
		}
	}
	o.room.wake() // pass it on: there is room for others too
	return nil
}

// countDrops adds to the messages dropped for this peer.
func (o *outbox) countDrops(n int) {
	o.mu.Lock()
	o.drops += uint64(n)
	o.mu.Unlock()
}

// take exchanges the queued octets for the emptied buffers in q and control,
// waiting until there is something. It reports false when gone closes first.
// roomy is called, without the lock, when a full outbox has become empty.
func (o *outbox) take(q *outqueue, control *[]byte, gone <-chan struct{}, roomy func()) bool {
	o.mu.Lock()
	o.writing = false
	for o.queue.empty() && len(o.control) == 0 {
		q.rest()
		o.queue.rest()
		o.asleep = true
		o.mu.Unlock()
		select {
		case <-o.filled:
		case <-gone:
			o.mu.Lock()
			o.asleep = false
			o.mu.Unlock()
			return false
		}
		o.mu.Lock()
		o.asleep = false
	}
	o.queue, *q = *q, o.queue
	o.control, *control = (*control)[:0], o.control
	o.writing = true
	wasFull := o.full
	o.full = false
	if wasFull {
		o.room.wake()
	}
	o.mu.Unlock()
	if wasFull && roomy != nil {
		roomy()
	}
	return true
}

// putBack returns octets that were taken but not written, in front of those
// queued since: whole messages only.
func (o *outbox) putBack(wire []byte, messages int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = false
	if len(wire) == 0 || o.ended {
		return
	}
	st, _ := o.queue.begin()
	st.octets = append(wire[:len(wire):len(wire)], st.octets...)
	items := make([]outitem, 0, len(o.queue.items)+1)
	items = append(items, outitem{size: len(wire)})
	o.queue.items = append(items, o.queue.items...)
	o.queue.messages += messages
	o.queue.octets += len(wire)
}

// discard drops what is queued: its peer is gone and will not come back as the
// same one.
func (o *outbox) discard() {
	o.mu.Lock()
	o.drops += uint64(o.queue.messages)
	o.queue.clear()
	o.control = o.control[:0]
	o.writing = false
	o.full = false
	o.room.wake()
	o.mu.Unlock()
}

// end refuses everything from now on.
func (o *outbox) end() {
	o.mu.Lock()
	o.ended = true
	o.queue.clear()
	o.full = false
	o.room.wake()
	o.mu.Unlock()
}

// flushed reports that nothing is queued or in the writer's hands.
func (o *outbox) flushed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended || (o.queue.empty() && len(o.control) == 0 && !o.writing)
}
