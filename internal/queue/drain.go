package queue

import (
	"runtime"
	"slices"

	"clustermap/internal/wake"
	"clustermap/zmtp"
)

// drainState is the state of the drain, which takes the queued messages out of an outbox:
// the writer of a connection, or over inproc the socket at the other end. These are its
// changes, the functions that make them, and when:
//
//	absent    Launch    uncalled  a connection has begun
//	uncalled  wake      working   a message was queued: start is called
//	working   Take      asleep    a writer that finds nothing keeps its goroutine
//	working   Exchange  uncalled  a socket that finds nothing has none to keep
//	asleep    wake      working   a message was queued: the writer gets a token
//	asleep    Retire    idle      the writer slept at one look of the timer
//	idle      wake      working   as when asleep
//	idle      Retire    leaving   it still slept at the next look: it gets a token, to end
//	leaving   Take      uncalled  it has ended
//	leaving   wake      working   a message was queued before it had: it goes on
//	any       Halt      absent    the connection has ended
//
// So there is never more than one writer, and queued messages never wait for a writer
// that has not been woken.
type drainState uint8

const (
	absent drainState = iota
	working
	// In the states from here on the drain holds no messages and does not touch the
	// connection: it has to be woken, and writeDirect may write.
	uncalled
	asleep
	idle
	leaving
)

// wake sets the drain to work, if it is not. mu must be held.
func (o *Outbox) wake() {
	if o.drain > working {
		o.wakeIdle()
	}
}

// wakeIdle is wake for a drain that is not at work.
func (o *Outbox) wakeIdle() {
	was := o.drain
	o.drain = working
	o.waker.wake(was)
}

// waker is how the drain is set to work.
type waker struct {
	start  func()        // starts it when it is uncalled; nil: not any more
	filled chan struct{} // wakes it when it sleeps; capacity 1
	stays  bool          // it never retires
}

// wake sets a drain to work that was in the given state.
func (w *waker) wake(was drainState) {
	switch was {
	case uncalled:
		w.start()
	case asleep, idle:
		wake.Signal(w.filled)
	}
}

// taken is what the drain has taken and not written yet: messages, without PONGs, and the
// bytes of the head.
type taken struct {
	HWM
	head int
}

// take says what the drain has in l.
func (t *taken) take(l *Load) {
	t.HWM = HWM{Messages: l.queue.Messages + l.head.messages, Bytes: l.queue.Bytes()}
	t.head = len(l.head.bytes)
}

// sleep says that the drain is not at work, so that the next message has to wake it.
func (o *Outbox) sleep(as drainState) { o.drain, o.queue.mark = as, 0 }

// Launch says how to start the writer of a connection. It starts with the first bytes to
// write, or now: many connections of a server never have any, and a goroutine's stack is
// most of the cost of a silent connection. One that is started now never retires.
func (o *Outbox) Launch(start func(), direct Direct, now bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waker.start, o.waker.stays, o.direct = start, now, direct
	o.sleep(uncalled)
	if now || o.full || !o.isEmpty() {
		o.wake()
	}
}

// Halt says that no writer is to be started any more.
func (o *Outbox) Halt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drain, o.waker.start, o.direct = absent, nil, Direct{}
}

// Retire has the writer end if it has slept since the last call, and reports
// whether it may do so later.
func (o *Outbox) Retire() (left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waker.stays {
		return false
	}
	switch o.drain {
	case working:
		return !o.linked
	case asleep:
		o.drain = idle
	case idle:
		o.wakeIdle()
		o.drain = leaving
	}
	return o.drain > uncalled // one that is leaving goes on if a message is queued first
}

// isEmpty says that there is nothing to take. If that is because all of a log was
// read, the drain is woken when there is more. mu must be held.
func (o *Outbox) isEmpty() bool {
	return o.queue.empty() && len(o.head.bytes) == 0 && !o.behind()
}

// Take exchanges the queued buffers for the emptied ones in l, and waits until there is
// one. The messages taken before have been written. It reports false when the writer is
// to end: gone was closed, or Retire says so. roomy is called, without the lock, when a
// full outbox takes messages again.
func (o *Outbox) Take(l *Load, gone <-chan struct{}, roomy func()) bool {
	beat := false
	select {
	case <-l.Beat:
		beat = true
	default:
	}
	o.mu.Lock()
	o.conn.sent(o.taken.HWM)
	last := o.taken.Bytes
	o.taken, o.held = taken{}, HWM{}
	for !beat && o.isEmpty() {
		if o.full {
			// Full of messages that were put back and are now written: none is queued
			// behind them whose taking would tell the senders.
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
		o.follows.yields.Store(false) // only the log says otherwise
		o.sleep(asleep)
		o.mu.Unlock()
		connected := true
		select {
		case <-o.waker.filled:
			// Other goroutines that can run do so first, senders among them: the messages
			// that they add go out in the same write. With a thousand subscribers that is
			// a third more. If no other can run, it costs nothing.
			runtime.Gosched()
			if o.follows.yields.Load() && last >= streamWrite {
				yield()
			}
		case <-l.Beat:
			beat = true
		case <-gone:
			connected = false
		}
		o.mu.Lock()
		if retired := o.drain == leaving; retired || !connected {
			o.drain = absent
			if retired && connected && o.waker.start != nil { // not halted meanwhile
				o.drain = uncalled
			}
			o.mu.Unlock()
			return false
		}
		o.drain = working
	}
	if l.Gathers && l.full {
		o.gather(roomy)
	}
	o.queue, l.queue = l.queue, o.queue
	if log := o.follows.log; log != nil {
		log.hand(o, &l.queue, true)
	}
	o.head, l.head = l.head, o.head
	o.taken.take(l)
	o.held, l.queue.back = l.queue.back, HWM{}
	wasFull := o.full
	l.full = wasFull
	o.full = false
	if wasFull {
		o.room.Wake()
	}
	o.mu.Unlock()
	if wasFull {
		roomy()
	}
	if beat {
		l.head.bytes = append(l.head.bytes, l.Ping...)
		l.Pinged = true
	}
	return true
}

// gather lets senders that have filled the queue with a few bytes add to it before it
// is taken, as long as they fill it again at once: messages queued already count as
// taken. Otherwise the number of messages limits the size of a write, and most of the
// time goes to waking the senders and the peer. It is called only if the queue was full
// the last time, too: the beginning of a stream is written at once. mu must be held;
// gather unlocks it in between.
func (o *Outbox) gather(roomy func()) {
	for range maxGathers {
		queued := HWM{o.queue.Messages, o.queue.Bytes()}
		if !o.full || o.life != living || queued.Bytes >= goodWrite {
			return
		}
		o.held = HWM{}.Minus(queued)
		o.full = false
		o.room.Wake()
		o.mu.Unlock()
		roomy()
		runtime.Gosched()
		o.mu.Lock()
	}
}

// Link says that the drain is a socket of this process, whose high-water mark is
// given: the queue is bounded by the sum of both, which it returns. With conflate it
// keeps the last message only.
func (o *Outbox) Link(limits HWM, conflate bool) HWM {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.linked, o.shares.far = true, limits
	if conflate {
		o.conflate, o.shares.own = true, HWM{Messages: Unbounded, Bytes: Unbounded}
	}
	o.relimit()
	o.settled()
	return o.limits
}

// Exchange is Take for a socket of this process: it does not wait. The messages that it
// takes count as queued until Consumed says otherwise, and are in the items of q. If
// there is nothing, it reports false, and the next message will start the drain.
func (o *Outbox) Exchange(q *Wire) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.head.bytes) > 0 {
		o.queue.prepend(slices.Clone(o.head.bytes), o.head.messages)
		o.head.clear()
	}
	if o.queue.empty() {
		q.rest()
		o.queue.rest()
		if o.drain == working {
			o.sleep(uncalled)
		}
		return false
	}
	*q, o.queue = o.queue, *q
	q.endStage()
	o.held.Messages += q.Messages
	o.held.Bytes += q.lent
	o.conn.sent(HWM{q.Messages, q.lent})
	return true
}

// Consumed says that n of the exchanged messages count no longer and, with idle, that the
// drain is to be started for messages queued by now or the next one. It reports whether a
// full outbox takes messages again.
func (o *Outbox) Consumed(n HWM, idle bool) (roomy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held.Messages = max(0, o.held.Messages-n.Messages)
	o.held.Bytes = max(0, o.held.Bytes-n.Bytes)
	if o.full {
		low := o.limits.Low()
		messages, bytes := o.queue.Messages+o.held.Messages, o.queue.Bytes()+o.held.Bytes
		roomy = messages == 0 || messages < low.Messages && bytes < low.Bytes
	}
	if roomy {
		o.full = false
		o.room.Wake()
	}
	if idle && o.drain == working {
		o.sleep(uncalled)
		if !o.isEmpty() {
			o.wake()
		}
	}
	return roomy
}

// Direct says how senders write, instead of waking a writer for that: what they queue in an
// empty outbox while the writer is not at work. The zero value leaves all to the writer.
//
// A request or a reply is alone: its sender has nothing to add before the answer to it. So its
// sender always writes it. A publisher or ROUTER may have more to send at once, for which a write for
// each message would cost too much. So its senders write only if the socket was idle, and one
// of its connections: the writers of the others work at the same time.
type Direct struct {
	// Write writes some of the bytes, without waiting, and returns how many.
	Write func(wire []byte) int
	Idle  *wake.Idle // of the socket; nil: they always write
}

// pass is wake, unless the sender itself writes the message that it has just queued. mu
// must be held.
func (o *Outbox) pass() {
	if o.drain > working && (o.direct.Write == nil || !o.writeDirect()) {
		o.wakeIdle()
	}
}

// writeDirect writes the message that was just queued, if there is no other and the
// kernel takes at least a part of it. The drain must not be at work, and mu must be held.
func (o *Outbox) writeDirect() bool {
	q := &o.queue
	if o.follows.log != nil || len(o.head.bytes) > 0 || len(q.Items) > 0 || len(q.staged()) > maxDirect {
		return false
	}
	if idle := o.direct.Idle; idle != nil && !idle.Over() {
		return false
	}
	sent := HWM{q.Messages, len(q.stage.Bytes)}
	n := o.direct.Write(q.stage.Bytes)
	if n == 0 {
		return false
	}
	if n < sent.Bytes {
		o.leave(n, sent.Messages, nil)
		sent.Messages = 0
	}
	o.conn.sent(sent)
	q.Drop()
	return true
}

// writeLarge writes a message of which most is in its last frame, as writeDirect does, but
// before the message is queued, in pieces that stay in the processor's cache, and only where senders
// always write. It reports false if nothing was written. mu must be held.
//
// It does not write the caller's slice itself: all slices passed to Send would be on
// the heap then, those of a few bytes too.
func (o *Outbox) writeLarge(lead []byte, frames [][]byte) bool {
	last := len(frames) - 1
	body := frames[last]
	if len(body) <= maxDirect || len(body) > maxLarge || o.drain <= working || o.direct.Write == nil ||
		o.direct.Idle != nil || o.conflate || o.follows.log != nil || !o.isEmpty() {
		return false
	}
	q := &o.queue
	st, _ := q.begin(directPiece, false)
	st.Bytes = append(st.Bytes, lead...)
	for _, f := range frames[:last] {
		st.Bytes = zmtp.AppendFrame(st.Bytes, f, true)
	}
	st.Bytes = zmtp.AppendHeader(st.Bytes, 0, len(body))
	sent := HWM{1, len(st.Bytes) + len(body)}
	for first := true; ; first = false {
		n := min(max(directPiece-len(st.Bytes), 0), len(body))
		st.Bytes, body = append(st.Bytes, body[:n]...), body[n:]
		n = o.direct.Write(st.Bytes)
		if first && n == 0 {
			q.Drop()
			return false
		}
		if n < len(st.Bytes) {
			o.leave(n, 1, body)
			sent.Messages = 0
			break
		}
		if len(body) == 0 {
			break
		}
		st.Bytes = st.Bytes[:0]
	}
	o.conn.sent(sent)
	q.Drop()
	return true
}

// leave leaves to the writer the bytes of the stage behind the first n, and behind them body. A
// message that has begun counts as taken: if the connection breaks, it is lost (RFC 37, 1.3).
// The writer counts it.
func (o *Outbox) leave(n, messages int, body []byte) {
	rest := o.queue.stage.Bytes[n:]
	st := newStage(len(rest) + len(body))
	st.Bytes = append(append(st.Bytes, rest...), body...)
	o.head.takeOver(st, messages)
	st.Pool()
	o.wake()
}
