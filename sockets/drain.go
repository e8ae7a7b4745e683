package sockets

import (
	"runtime"
	"slices"
	"time"
)

// drainState is the state of whoever takes what is queued in an outbox: the writer of a
// connection, or over inproc the socket at the other end. These are its changes, and
// what makes them:
//
//	absent    launch    uncalled  a connection has begun
//	uncalled  rouse     working   something was queued: start is called
//	working   take      asleep    a writer that finds nothing keeps its goroutine
//	working   exchange  uncalled  a socket that finds nothing has none to keep
//	asleep    rouse     working   something was queued: the writer gets a token
//	asleep    retire    drowsy    the writer slept at one look of the timer
//	drowsy    rouse     working   as when asleep
//	drowsy    retire    leaving   it still slept at the next look: it gets a token, to end
//	leaving   take      uncalled  it has ended
//	leaving   rouse     working   something was queued before it had: it goes on
//	any       halt      absent    the connection has ended
//
// So there is never more than one writer, and what is queued never waits for one that
// nobody has woken.
type drainState uint8

const (
	absent drainState = iota
	working
	// In the states from here on the drain has nothing in its hands and does not touch
	// the connection: rouse has to wake it, and writeDirect may write.
	uncalled
	asleep
	drowsy
	leaving
)

// rouse sets the drain to work, if it is not. mu must be held.
func (o *outbox) rouse() {
	if o.drain > working {
		o.wake()
	}
}

// wake is rouse where it has something to do.
func (o *outbox) wake() {
	was := o.drain
	o.drain = working
	switch was {
	case uncalled:
		o.start()
	case asleep, drowsy:
		select {
		case o.filled <- struct{}{}:
		default:
		}
	}
}

// sleep says that the drain is not at work, so that the next message has to rouse it.
func (o *outbox) sleep(as drainState) { o.drain, o.queue.mark = as, 0 }

// launch says how to start the writer of a connection. That is done when there is
// something to write for the first time, or now: many connections of a server
// never see that, and a goroutine's stack is most of what a silent one costs.
// Senders write with direct, if it is not nil.
func (o *outbox) launch(start func(), direct *directWriter, now bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.start, o.direct = start, direct
	o.sleep(uncalled)
	if now || o.full || !o.isEmpty() {
		o.rouse()
	}
}

// halt says that no writer is to be started any more.
func (o *outbox) halt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain, o.start, o.direct = absent, nil, nil
}

// retire has the writer end if it has slept since the last call, and reports
// whether it may do so later.
func (o *outbox) retire() (left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.drain {
	case working:
		return !o.linked
	case asleep:
		o.drain = drowsy
		return true
	case drowsy:
		o.wake()
		o.drain = leaving
	}
	return false
}

// isEmpty says that there is nothing to take. If that is because all of a log was
// read, the drain is woken when there is more. mu must be held.
func (o *outbox) isEmpty() bool {
	return o.queue.empty() && len(o.head.bytes) == 0 && !o.behind()
}

// load is what a writer has taken, in the order in which it goes out.
type load struct {
	head  head
	queue outqueue

	// A PING is added when beat ticks, which is nil without heartbeats.
	beat   <-chan time.Time
	ping   []byte
	pinged bool // there is one
}

// take exchanges what is queued for the emptied buffers in l, waiting until there is
// something. What was taken before has been written. It reports false when the
// writer is to end: gone was closed, or retire says so. roomy is called, without the
// lock, when a full outbox takes messages again.
func (o *outbox) take(l *load, gone <-chan struct{}, roomy func()) bool {
	beat := false
	select {
	case <-l.beat:
		beat = true
	default:
	}
	o.mu.Lock()
	o.taken, o.held = hwm{}, hwm{}
	for !beat && o.isEmpty() {
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
		l.queue.rest()
		o.queue.rest()
		o.settled()
		o.sleep(asleep)
		o.mu.Unlock()
		connected := true
		select {
		case <-o.filled:
			// Whoever else can run does so first, senders among them: what they
			// add goes out in the same write. With a thousand subscribers that
			// is a third more. Where nobody else can, it costs nothing.
			runtime.Gosched()
		case <-l.beat:
			beat = true
		case <-gone:
			connected = false
		}
		o.mu.Lock()
		if retired := o.drain == leaving; retired || !connected {
			o.drain = absent
			if retired && connected && o.start != nil { // not halted meanwhile
				o.drain = uncalled
			}
			o.mu.Unlock()
			return false
		}
		o.drain = working
	}
	o.queue, l.queue = l.queue, o.queue
	if log := o.follows.log; log != nil {
		log.hand(o, &l.queue, true)
	}
	o.head, l.head = l.head, o.head
	o.taken = hwm{l.queue.messages + l.head.messages, l.queue.bytes()}
	o.held, l.queue.back = l.queue.back, hwm{}
	wasFull := o.full
	o.full = false
	if wasFull {
		o.room.Wake()
	}
	o.mu.Unlock()
	if wasFull {
		roomy()
	}
	if beat {
		l.head.bytes = append(l.head.bytes, l.ping...)
		l.pinged = true
	}
	return true
}

// clear empties l, whose contents were written, and keeps the buffers for reuse. No
// lock may be held.
func (l *load) clear() {
	l.queue.clear()
	l.head.clear()
}

// link says that the drain is a socket of this process, whose high-water mark is
// given: the queue is bounded by the sum of both, which it returns. With conflate it
// keeps the last message only.
func (o *outbox) link(limits hwm, conflate bool) hwm {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.linked = true
	o.limits = o.limits.plus(limits)
	if conflate {
		o.conflate, o.limits = true, hwm{unbounded, unbounded}
	}
	o.full, o.queue.mark = false, 0
	o.room.Wake()
	o.settled()
	return o.limits
}

// exchange is take for a socket of this process: it does not wait. What it takes
// counts as queued until consumed says otherwise. If there is nothing, it reports
// false, and the next message will start the drain.
func (o *outbox) exchange(q *outqueue) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.head.bytes) > 0 {
		o.queue.prepend(slices.Clone(o.head.bytes), o.head.messages)
		o.head.clear()
	}
	if o.queue.empty() {
		o.queue.rest()
		if o.drain == working {
			o.sleep(uncalled)
		}
		return false
	}
	*q, o.queue = o.queue, *q
	o.held.messages += q.messages
	o.held.bytes += q.bytes()
	return true
}

// consumed says that so much of what was exchanged counts no longer and, with idle,
// that the drain is to be started for what is queued by now or comes next. It reports
// whether a full outbox takes messages again.
func (o *outbox) consumed(n hwm, idle bool) (roomy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held.messages = max(0, o.held.messages-n.messages)
	o.held.bytes = max(0, o.held.bytes-n.bytes)
	if o.full {
		low := o.limits.low()
		messages, bytes := o.queue.messages+o.held.messages, o.queue.bytes()+o.held.bytes
		roomy = messages == 0 || messages < low.messages && bytes < low.bytes
	}
	if roomy {
		o.full = false
		o.room.Wake()
	}
	if idle && o.drain == working {
		o.sleep(uncalled)
		if !o.isEmpty() {
			o.rouse()
		}
	}
	return roomy
}
