package sockets

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"clustermap/internal/queue"
)

// 1/totalStep of the limit is the least that may be queued between two computations.
const totalStep = 16

// total enforces Options.SendTotalBytes of a socket that sends to one peer what no other
// peer can get in its place: ROUTER, REP, STREAM, SUB and XSUB. See fanout.Publisher for
// PUB and XPUB, and balancer.admits for PUSH and DEALER. Computing the total visits every
// queue, so the socket does it only when enough bytes were queued since the last time to
// reach the limit.
type total struct {
	socket *socket

	limit atomic.Int64 // 0 means no limit
	room  atomic.Int64 // bytes that may be queued before the total is computed again
	mu    sync.Mutex   // held while computing the total
}

// set sets the limit. The next message that is queued makes the socket compute the total.
func (t *total) set(limit int) {
	if limit == unbounded {
		limit = 0
	}
	t.mu.Lock() // not while expel computes the total with the previous limit
	defer t.mu.Unlock()
	t.limit.Store(int64(limit))
	t.room.Store(0)
}

// queued records that messages of the given size in wire form were queued.
func (t *total) queued(bytes int) {
	if t.limit.Load() > 0 && t.room.Add(-int64(bytes)) <= 0 {
		t.relieve()
	}
}

// queuedFrames is like queued, for a message that is not in wire form.
func (t *total) queuedFrames(frames [][]byte) {
	if t.limit.Load() == 0 {
		return
	}
	t.queued(bodiesSize(frames))
}

// bodiesSize returns the size of the bodies of a message.
func bodiesSize(frames [][]byte) (n int) {
	for _, f := range frames {
		n += len(f)
	}
	return n
}

// spansSize returns the size of the messages of spans.
func spansSize(spans []Span) (n int) {
	for _, s := range spans {
		n += int(s.End - s.Start)
	}
	return n
}

// backlog is the size of a peer's send queue.
type backlog struct {
	pipe  *pipe
	bytes int
}

// relieve computes the total. While it exceeds the limit, relieve disconnects the peer
// with the longest queue and drops the queue.
func (t *total) relieve() {
	lost := t.expel()
	for i := range lost { // without a lock, because the Release method of an Owner is application code
		lost[i].Drop()
	}
}

// expel does the work of relieve, but returns the removed queues instead of dropping
// them.
func (t *total) expel() (lost []queue.Wire) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.room.Load() > 0 {
		return nil // another goroutine has just done it
	}
	limit := t.limit.Load()
	var all []backlog
	sum := int64(0)
	for _, p := range t.socket.list() {
		if n := p.out.Status().Held(); n > 0 {
			all = append(all, backlog{p, n})
			sum += int64(n)
		}
	}
	if limit > 0 && sum > limit {
		slices.SortFunc(all, func(a, b backlog) int { return cmp.Compare(b.bytes, a.bytes) })
	}
	for i := 0; i < len(all) && limit > 0 && sum > limit; i++ {
		p := all[i].pipe
		sum -= int64(all[i].bytes)
		lost = append(lost, p.out.Empty())
		if peer := p.peer.Load(); peer != nil {
			peer.Disconnect(ErrSlowPeer)
		}
	}
	t.room.Store(max(limit-sum, limit/totalStep, 1))
	return lost
}
