package sockets

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"clustermap/internal/queue"
)

// total enforces Options.SendTotalBytes of a ROUTER, like publisher.room for PUB and
// XPUB. Computing the total visits every queue, so the ROUTER does it only when
// enough bytes were queued since the last time to reach the limit.
type total struct {
	limit atomic.Int64 // 0 means no limit
	room  atomic.Int64 // bytes that may be queued before the total is computed again
	mu    sync.Mutex   // held while computing the total
}

// set sets the limit. The next message that is queued makes the ROUTER compute the total.
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
func (r *Router) queued(bytes int) {
	if r.total.limit.Load() > 0 && r.total.room.Add(-int64(bytes)) <= 0 {
		r.relieve()
	}
}

// queuedFrames is like queued, for a message that is not in wire form.
func (r *Router) queuedFrames(frames [][]byte) {
	if r.total.limit.Load() == 0 {
		return
	}
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	r.queued(n)
}

// queuedSpans is like queued, for the messages of spans.
func (r *Router) queuedSpans(spans []Span) {
	if r.total.limit.Load() == 0 {
		return
	}
	n := 0
	for _, s := range spans {
		n += int(s.End - s.Start)
	}
	r.queued(n)
}

// backlog is the size of a peer's send queue.
type backlog struct {
	pipe  *pipe
	bytes int
}

// relieve computes the total. While it exceeds the limit, relieve disconnects the peer
// with the longest queue and drops the queue.
func (r *Router) relieve() {
	lost := r.expel()
	for i := range lost { // without a lock, because the Release method of an Owner is application code
		lost[i].Drop()
	}
}

// expel does the work of relieve, but returns the removed queues instead of dropping
// them.
func (r *Router) expel() (lost []queue.Wire) {
	t := &r.total
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.room.Load() > 0 {
		return nil // another goroutine has just done it
	}
	limit := t.limit.Load()
	var all []backlog
	sum := int64(0)
	for _, p := range r.list() {
		if s := p.out.Status(); s.Bytes+s.Taken > 0 {
			n := s.Bytes + s.Taken
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
