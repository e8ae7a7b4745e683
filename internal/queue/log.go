package queue

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/invariants"
	"clustermap/internal/list"
	"clustermap/zmtp"
)

// Log holds the messages that a publisher sends to the peers of a group: in wire form,
// once for all of them. Each peer follows it at its own pace, as its writer takes the
// messages added since it last did so. So a message costs the publisher the same whether
// two follow or two thousand.
//
// A peer follows as long as it keeps within its high-water mark. One that does
// not, or that is to get a message alone, leaves: its unread messages go to its own
// queue, and it is a peer like any other until that is empty.
//
// Only the publisher adds, with the mutex of the subscriptions held. mu is the
// last to be locked, behind that one and an outbox's.
type Log struct {
	mu        sync.Mutex
	pieces    []piece // from the one that the slowest follower reads next
	stage     *Stage  // for copied messages
	tail      position
	followers list.List[Outbox] // in the order in which they have read, the slowest first
	idle      []*Outbox         // followers to wake for the next message

	woken   []*Outbox // scratch of unlock
	wokenAt time.Time // when unlock last woke several
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
	log *Log     // nil: none. Guarded by the outbox's mutex, the rest by the log's
	at  position // everything before it was read

	place list.Element[Outbox] // in Log.followers
	idle  bool                 // is in the log's list of that name

	yields atomic.Bool // the writer calls yield when the log wakes it, if it writes a stream
}

// Follow has the outbox read the log from its end on, if nothing else is queued.
func (o *Outbox) Follow(l *Log) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.queue.empty() || o.admit(nil) != Accepted {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o.follows.log, o.follows.at, o.follows.place.Of = l, l.tail, o
	l.followers.PushBack(&o.follows.place)
	if o.drain > working {
		l.await(o)
	}
	return true
}

// Unfollow is the end of Follow: the outbox's unread messages of the log go to its queue.
// It reports whether the outbox followed one. See unfollow.
func (o *Outbox) Unfollow(scratch *Wire) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unfollow(scratch)
}

// unfollow queues the outbox's unread messages of the log that it follows, if it does,
// and has it follow no more. With scratch they are copied, unless they are many, so that
// they do not hold on to many times the memory that they count. mu must be held.
func (o *Outbox) unfollow(scratch *Wire) bool {
	l := o.follows.log
	if l == nil {
		return false
	}
	_, bytes := o.backlog()
	o.follows.log = nil
	if scratch == nil || bytes > copyRest {
		l.hand(o, &o.queue, false)
		return true
	}
	l.hand(o, scratch, false)
	for _, item := range scratch.Items {
		if s, copied := item.owner.(*Stage); copied {
			o.enter(item.wire, 0, nil)
			s.Release()
		} else {
			o.queue.lend(item.wire, 0, item.owner)
		}
	}
	o.queue.Messages += scratch.Messages
	scratch.Forget()
	return true
}

// behind says whether there are unread messages in the log that the outbox follows. If
// there are none, the outbox is to be woken for the next one. mu must be held.
func (o *Outbox) behind() bool {
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

// backlog returns the size of the messages that wait for the writer, in the queue and in
// the log. mu must be held.
func (o *Outbox) backlog() (messages, bytes int) {
	messages, bytes = o.queue.Messages, o.queue.Bytes()
	if l := o.follows.log; l != nil {
		l.mu.Lock()
		messages += int(l.tail.messages - o.follows.at.messages)
		bytes += int(l.tail.bytes - o.follows.at.bytes)
		l.mu.Unlock()
	}
	return messages, bytes
}

// await has the follower woken for the next message. mu must be held.
func (l *Log) await(o *Outbox) {
	if !o.follows.idle {
		o.follows.idle = true
		l.idle = append(l.idle, o)
	}
}

// hand lends to q the unread messages of o, whose mutex is held. If o stays, it has then
// read them; otherwise it follows no more.
func (l *Log) hand(o *Outbox, q *Wire, stays bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := o.follows.at
	if stays && at == l.tail {
		return
	}
	o.follows.place.Remove()
	if stays {
		o.follows.at = l.tail
		l.followers.PushBack(&o.follows.place)
	} else if o.follows.idle { // the next log is to know it as well
		i := slices.Index(l.idle, o)
		l.idle = slices.Delete(l.idle, i, i+1)
		o.follows.idle = false
	}
	if at == l.tail {
		return
	}
	// The pieces that no follower will read after o were last read by o: if there are
	// any, o reads all of them, since it was the slowest. So the log's references to
	// these pieces become o's, and none is given up with a lock held.
	rest := l.tail
	if slowest := l.followers.Front(); slowest != nil {
		rest = slowest.follows.at
	}
	done, first := l.before(rest.bytes), l.before(at.bytes)
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
	q.Messages += int(l.tail.messages - at.messages)
	l.pieces = slices.Delete(l.pieces, 0, done)
	if len(l.pieces) == 0 && l.stage != nil {
		l.stage.Release()
		l.stage = nil
	}
}

// before returns the number of pieces that end before the byte at. mu must be held.
func (l *Log) before(at int64) int {
	return sort.Search(len(l.pieces), func(i int) bool {
		return l.pieces[i].from.bytes+int64(len(l.pieces[i].wire)) > at
	})
}

// First returns the follower that has read least, or nil.
func (l *Log) First() *Outbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.followers.Front()
}

// Overtaken returns a follower whose unread messages have reached limits, or nil.
func (l *Log) Overtaken(limits HWM) *Outbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.followers.Front()
	if o != nil && l.tail.messages-o.follows.at.messages < int64(limits.Messages) &&
		l.tail.bytes-o.follows.at.bytes < int64(limits.Bytes) {
		return nil
	}
	return o
}

// Add appends one message, by copy. Without followers the message is dropped.
func (l *Log) Add(frames [][]byte, size int) {
	l.mu.Lock()
	defer l.unlock()
	if l.followers.Len() == 0 {
		return
	}
	s, before := l.begin(size)
	s.Bytes = zmtp.AppendMessage(s.Bytes, frames...)
	l.commit(s.Bytes[before:], 1)
}

// AddWire appends messages in wire form: lent if they are large enough and have
// an owner, else by copy.
func (l *Log) AddWire(wire []byte, messages int, owner Owner) {
	l.mu.Lock()
	defer l.unlock()
	switch {
	case l.followers.Len() == 0:
	case owner != nil && len(wire) >= LendFrom:
		owner.Retain()
		l.append(piece{l.tail, wire, owner}, messages)
	default:
		s, before := l.begin(len(wire))
		s.Bytes = append(s.Bytes, wire...)
		l.commit(s.Bytes[before:], messages)
	}
}

// AddRuns copies runs of wire bytes in one go; see hooks.SendWire.
func (l *Log) AddRuns(wire []byte, runs []Run, messages int) {
	l.mu.Lock()
	defer l.unlock()
	if l.followers.Len() == 0 {
		return
	}
	s, before := l.begin(SizeOf(runs))
	s.Bytes = AppendRuns(s.Bytes, wire, runs)
	l.commit(s.Bytes[before:], messages)
}

// begin returns the stage for the given number of further bytes, and the number that it
// holds. mu must be held.
func (l *Log) begin(bytes int) (*Stage, int) {
	if l.stage != nil && len(l.stage.Bytes) > 0 && len(l.stage.Bytes)+bytes > fullLogStage {
		l.stage.Release()
		l.stage = nil
	}
	if l.stage == nil {
		l.stage = NewStage()
	}
	return l.stage, len(l.stage.Bytes)
}

// commit enters the messages appended to the stage. mu must be held.
func (l *Log) commit(added []byte, messages int) {
	if last := len(l.pieces) - 1; last >= 0 && l.pieces[last].owner == Owner(l.stage) {
		p := &l.pieces[last]
		all := l.stage.Bytes // which may have moved
		p.wire = all[len(all)-len(added)-len(p.wire):]
		l.tail.messages += int64(messages)
		l.tail.bytes += int64(len(added))
		return
	}
	l.stage.Retain()
	l.append(piece{l.tail, added, l.stage}, messages)
}

// append enters a piece. mu must be held.
func (l *Log) append(p piece, messages int) {
	l.pieces = append(l.pieces, p)
	l.tail.messages += int64(messages)
	l.tail.bytes += int64(len(p.wire))
}

// unlock unlocks mu, and wakes the followers that had read everything before. If there are
// several, the first of them let other processes run before they write a stream, so that the
// sender adds more to each write: only if it has woken several just before, since a message
// after a pause must not wait. One follower alone reads as fast as its peer does.
func (l *Log) unlock() {
	if len(l.idle) == 0 {
		l.mu.Unlock()
		return
	}
	l.idle, l.woken = l.woken[:0], l.idle
	for _, o := range l.woken {
		o.follows.idle = false
	}
	l.mu.Unlock()
	yielding := 0
	if len(l.woken) > 1 {
		now := time.Now()
		if now.Sub(l.wokenAt) <= streamPause {
			yielding = yielders
		}
		l.wokenAt = now
	}
	for i, o := range l.woken {
		o.mu.Lock()
		if i < yielding && o.follows.log == l {
			o.follows.yields.Store(true)
		}
		o.wake() // even if it has left: its unread messages are in its queue then
		o.mu.Unlock()
		l.woken[i] = nil
	}
}

// BehindBy returns the followers that have at least the given number of bytes left to
// read.
func (l *Log) BehindBy(bytes int) (behind []*Outbox) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := range l.followers.All() {
		if l.tail.bytes-o.follows.at.bytes < int64(bytes) {
			break
		}
		behind = append(behind, o)
	}
	return behind
}
