package engine

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"clustermap/internal/queue"
)

// total enforces Config.SendTotalBytes of a socket that sends to one peer what no other
// peer can get in its place: ROUTER, REP, STREAM, SUB and XSUB. See fanout.Publisher for
// PUB and XPUB, and route.Balancer for PUSH and DEALER. Computing the total visits every
// queue, so the socket does it only when enough bytes were queued since the last time to
// reach the limit.
type total struct {
	limit  atomic.Int64 // 0 means no limit
	queued atomic.Int64 // bytes that were ever queued
	next   atomic.Int64 // when queued has reached it, the total is computed again
	mu     sync.Mutex   // held while computing the total
}

// set sets the limit. The next message that is queued makes the socket compute the total.
func (t *total) set(limit int) {
	if limit == queue.Unbounded {
		limit = 0
	}
	t.mu.Lock() // not while expel computes the total with the previous limit
	defer t.mu.Unlock()
	t.limit.Store(int64(limit))
	t.next.Store(0)
}

// Queued records that messages of the given size in wire form were queued, of a type that
// has no other bound on all queues together.
func (s *Socket) Queued(bytes int) {
	if t := &s.total; t.limit.Load() > 0 && t.queued.Add(int64(bytes)) >= t.next.Load() {
		s.shed()
	}
}

// BodiesSize returns the size of the bodies of a message.
func BodiesSize(frames [][]byte) (n int) {
	for _, f := range frames {
		n += len(f)
	}
	return n
}

// backlog is the size of a peer's send queue.
type backlog struct {
	pipe  *Pipe
	bytes int
}

// shed computes the total. While it exceeds the limit, shed disconnects the peer
// with the longest queue and drops the queue.
func (s *Socket) shed() {
	lost := s.expel()
	for i := range lost { // without a lock, because the Release method of an Owner is application code
		lost[i].Drop()
	}
}

// expel does the work of shed, but returns the removed queues instead of dropping
// them.
func (s *Socket) expel() (lost []queue.Wire) {
	t := &s.total
	t.mu.Lock()
	defer t.mu.Unlock()
	// Read first: what is queued from here on counts, whether a queue below has it already
	// or not.
	queued := t.queued.Load()
	if queued < t.next.Load() {
		return nil // another goroutine has just done it
	}
	limit := t.limit.Load()
	var all []backlog
	sum := int64(0)
	for _, p := range s.Pipes() {
		if n := p.Out.Status().Held(); n > 0 {
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
		lost = append(lost, p.Out.Empty())
		// The queue knows its connection from before the first message for it, p.peer only
		// after Pattern.Attach, which queues the subscriptions of a SUB. Looked at after
		// Empty: whose messages were removed is this one, or has ended.
		if peer := PeerOf(p.Out.Connected()); peer != nil {
			peer.Disconnect(queue.ErrSlowPeer)
		}
	}
	t.next.Store(queued + max(limit-sum, limit/TotalStep, 1))
	return lost
}
