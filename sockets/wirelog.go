package sockets

import (
	"slices"
	"sync"

	"clustermap/internal/invariants"
	"clustermap/zmtp"
)

// wirelog is what a publisher sends to the peers of a group: in wire form, once for
// all of them. Each of them follows it at its own pace, as its writer takes what was
// added since it did so last. So a message costs the publisher the same whether two
// follow or two thousand.
//
// A peer follows as long as it keeps within its high-water mark. One that does
// not, or that is to get something alone, leaves: what it has not read goes to its
// own queue, and it is a peer like any other until that is empty.
//
// Only the publisher adds, with the mutex of the subscriptions held. mu is the
// last to be locked, behind that one and an outbox's.
type wirelog struct {
	mu      sync.Mutex
	pieces  []piece // from the one that the slowest follower reads next
	stage   *stage  // what is copied goes there
	tail    position
	slowest *outbox // the followers are in a list, in the order in which they have read
	fastest *outbox
	idle    []*outbox // followers to wake for what is added next

	woken []*outbox // scratch of unlock
}

// position is how much of the log lies before some place of it.
type position struct{ messages, bytes int64 }

// piece is bytes of the log that have one owner, which it keeps.
type piece struct {
	from  position
	wire  []byte
	owner Owner
}

// follower is an outbox's part in the log that it follows.
type follower struct {
	log  *wirelog // nil: none. Guarded by the outbox's mutex, the rest by the log's
	pipe *pipe    // that the outbox is of
	at   position // what is before was read

	slower, faster *outbox
	idle           bool // is in the log's list of that name
}

const (
	// fullLogStage is how far a stage of the log is filled. A peer that takes
	// nothing holds on to all of the stage of which it has not read the end.
	fullLogStage = 128 << 10
	// copyRest is the most bytes that a peer which leaves the log gets by copy.
	// With more, what it holds on to besides is little beside them.
	copyRest = 2 * fullLogStage
)

// follow has the peer read the log from its end on, if nothing else is queued.
func (q *pipe) follow(l *wirelog) bool {
	o := &q.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.queue.empty() || o.admit(nil) != accepted {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o.follows.log, o.follows.pipe, o.follows.at = l, q, l.tail
	l.enlist(o)
	if o.drain > working {
		l.await(o)
	}
	return true
}

// unfollow queues what the outbox has not read of the log that it follows, if it
// does, and has it follow no more. With scratch it is copied, unless it is much, so
// that it does not hold on to many times the memory that it counts. mu must be held.
func (o *outbox) unfollow(scratch *outqueue) {
	l := o.follows.log
	if l == nil {
		return
	}
	_, bytes := o.backlog()
	o.follows.log = nil
	if scratch == nil || bytes > copyRest {
		l.hand(o, &o.queue, false)
		return
	}
	l.hand(o, scratch, false)
	for _, item := range scratch.items {
		if s, copied := item.owner.(*stage); copied {
			o.enter(item.wire, 0, nil)
			s.Release()
		} else {
			o.queue.lend(item.wire, 0, item.owner)
		}
	}
	o.queue.messages += scratch.messages
	scratch.forget()
}

// behind says whether there is something to read in the log that the outbox
// follows. If there is not, it is to be woken when there is. mu must be held.
func (o *outbox) behind() bool {
	l := o.follows.log
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.follows.at != l.tail {
		return true
	}
	l.await(o)
	return false
}

// backlog returns what waits for the writer, in the queue and in the log. mu must
// be held.
func (o *outbox) backlog() (messages, bytes int) {
	messages, bytes = o.queue.messages, o.queue.bytes()
	if l := o.follows.log; l != nil {
		l.mu.Lock()
		messages += int(l.tail.messages - o.follows.at.messages)
		bytes += int(l.tail.bytes - o.follows.at.bytes)
		l.mu.Unlock()
	}
	return messages, bytes
}

// await has the follower woken for what is added next. mu must be held.
func (l *wirelog) await(o *outbox) {
	if !o.follows.idle {
		o.follows.idle = true
		l.idle = append(l.idle, o)
	}
}

// enlist makes o the fastest follower. mu must be held.
func (l *wirelog) enlist(o *outbox) {
	f := &o.follows
	f.slower, f.faster = l.fastest, nil
	if f.slower != nil {
		f.slower.follows.faster = o
	} else {
		l.slowest = o
	}
	l.fastest = o
}

// delist takes o out of the list. mu must be held.
func (l *wirelog) delist(o *outbox) {
	f := &o.follows
	if f.slower != nil {
		f.slower.follows.faster = f.faster
	} else {
		l.slowest = f.faster
	}
	if f.faster != nil {
		f.faster.follows.slower = f.slower
	} else {
		l.fastest = f.slower
	}
	f.slower, f.faster = nil, nil
}

// hand lends to q what o, whose mutex is held, has not read. Either it has then,
// or, if it does not stay, it follows no more.
func (l *wirelog) hand(o *outbox, q *outqueue, stays bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := o.follows.at
	if stays && at == l.tail {
		return
	}
	l.delist(o)
	if stays {
		o.follows.at = l.tail
		l.enlist(o)
	} else if o.follows.idle { // the next log is to know it as well
		i := slices.Index(l.idle, o)
		l.idle = slices.Delete(l.idle, i, i+1)
		o.follows.idle = false
	}
	if at == l.tail {
		return
	}
	// What nobody will read after o was last read by o: if it is in front of the
	// others, it reads all of it, since it was the slowest. So the log's references
	// to these pieces become o's, and none is given up with a lock held.
	done := l.read()
	first := l.find(at.bytes)
	invariants.Assert(done == 0 || first == 0, "what is read by all was read by the slowest last")
	for i := first; i < len(l.pieces); i++ {
		p := &l.pieces[i]
		wire := p.wire
		if i == first {
			wire = wire[at.bytes-p.from.bytes:]
		}
		if i >= done {
			p.owner.Retain()
		}
		q.lend(wire[:len(wire):len(wire)], 0, p.owner)
	}
	q.messages += int(l.tail.messages - at.messages)
	l.pieces = slices.Delete(l.pieces, 0, done)
	if len(l.pieces) == 0 && l.stage != nil {
		l.stage.Release()
		l.stage = nil
	}
}

// read returns the number of pieces that all followers have read. mu must be
// held.
func (l *wirelog) read() (n int) {
	if l.slowest == nil {
		return len(l.pieces)
	}
	at := l.slowest.follows.at.bytes
	for n < len(l.pieces) && l.pieces[n].end() <= at {
		n++
	}
	return n
}

// find returns the piece with the byte at. mu must be held.
func (l *wirelog) find(at int64) int {
	i := len(l.pieces) - 1
	for i > 0 && l.pieces[i].from.bytes > at { // most are near the end
		i--
	}
	return i
}

func (p *piece) end() int64 { return p.from.bytes + int64(len(p.wire)) }

// first returns the follower that has read least, or nil.
func (l *wirelog) first() *pipe {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slowest == nil {
		return nil
	}
	return l.slowest.follows.pipe
}

// overtaken returns a follower that has so many messages or bytes to read, or
// nil.
func (l *wirelog) overtaken(limits hwm) *pipe {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.slowest
	if o == nil {
		return nil
	}
	if at := &o.follows.at; l.tail.messages-at.messages >= int64(limits.messages) ||
		l.tail.bytes-at.bytes >= int64(limits.bytes) {
		return o.follows.pipe
	}
	return nil
}

// add appends one message, by copy. What is added where nobody follows is gone.
func (l *wirelog) add(frames [][]byte, size int) {
	l.mu.Lock()
	defer l.unlock()
	if l.slowest == nil {
		return
	}
	s := l.begin(size)
	before := len(s.bytes)
	s.bytes = zmtp.AppendMessage(s.bytes, frames...)
	l.commit(s.bytes[before:], 1)
}

// addWire appends messages in wire form: lent if they are large enough and have
// an owner, else by copy.
func (l *wirelog) addWire(wire []byte, messages int, owner Owner) {
	l.mu.Lock()
	defer l.unlock()
	if l.slowest == nil {
		return
	}
	if owner != nil && len(wire) >= lendFrom {
		owner.Retain()
		l.append(piece{l.tail, wire, owner}, messages)
	} else {
		s := l.begin(len(wire))
		before := len(s.bytes)
		s.bytes = append(s.bytes, wire...)
		l.commit(s.bytes[before:], messages)
	}
}

// addRuns copies runs of wire bytes in one go; see Pub.SendWire.
func (l *wirelog) addRuns(wire []byte, runs []run, messages int) {
	l.mu.Lock()
	defer l.unlock()
	if l.slowest == nil {
		return
	}
	s := l.begin(bytesOf(runs))
	before := len(s.bytes)
	s.bytes = appendRuns(s.bytes, wire, runs)
	l.commit(s.bytes[before:], messages)
}

// begin returns the stage for so many bytes more. mu must be held.
func (l *wirelog) begin(bytes int) *stage {
	if l.stage != nil && len(l.stage.bytes) > 0 && len(l.stage.bytes)+bytes > fullLogStage {
		l.stage.Release()
		l.stage = nil
	}
	if l.stage == nil {
		l.stage = newStage()
	}
	return l.stage
}

// commit enters what was appended to the stage. mu must be held.
func (l *wirelog) commit(added []byte, messages int) {
	if last := len(l.pieces) - 1; last >= 0 && l.pieces[last].owner == Owner(l.stage) {
		p := &l.pieces[last]
		all := l.stage.bytes // which may have moved
		p.wire = all[len(all)-len(added)-len(p.wire):]
		l.tail.messages += int64(messages)
		l.tail.bytes += int64(len(added))
		return
	}
	l.stage.Retain()
	l.append(piece{l.tail, added, l.stage}, messages)
}

// append enters a piece. mu must be held.
func (l *wirelog) append(p piece, messages int) {
	l.pieces = append(l.pieces, p)
	l.tail.messages += int64(messages)
	l.tail.bytes += int64(len(p.wire))
}

// unlock unlocks mu, and wakes the followers that had read everything before.
func (l *wirelog) unlock() {
	if len(l.idle) == 0 {
		l.mu.Unlock()
		return
	}
	l.idle, l.woken = l.woken[:0], l.idle
	for _, o := range l.woken {
		o.follows.idle = false
	}
	l.mu.Unlock()
	for i, o := range l.woken {
		o.mu.Lock()
		o.rouse() // even if it has left: what it has not read is in its queue then
		o.mu.Unlock()
		l.woken[i] = nil
	}
}
