package sockets

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// total enforces Options.SendTotalBytes of a ROUTER, as publisher does for PUB and XPUB:
// to add the queues up takes a look at each, so that is done only when enough bytes
// have been queued since the last time to reach the bound.
type total struct {
	limit int64        // 0: there is no bound
	room  atomic.Int64 // bytes that may be queued before the queues are added up again
	mu    sync.Mutex   // who adds up
}

func (t *total) init(limit int) {
	t.limit = int64(max(limit, 0))
	t.room.Store(t.limit)
}

// queued records that a message or some in wire form were queued.
func (r *Router) queued(bytes int) {
	if r.total.limit > 0 && r.total.room.Add(-int64(bytes)) <= 0 {
		r.relieve()
	}
}

// queuedFrames is queued for a message that is not in wire form.
func (r *Router) queuedFrames(frames [][]byte) {
	if r.total.limit == 0 {
		return
	}
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	r.queued(n)
}

// queuedSpans is queued for the messages of spans.
func (r *Router) queuedSpans(spans []Span) {
	if r.total.limit == 0 {
		return
	}
	n := 0
	for _, s := range spans {
		n += int(s.End - s.Start)
	}
	r.queued(n)
}

// backlog is what is queued for a peer.
type backlog struct {
	pipe  *pipe
	bytes int
}

// relieve adds the queues up. While they are beyond the bound, the peer with the longest
// queue loses it, and its connection.
func (r *Router) relieve() {
	lost := r.expel()
	for i := range lost { // with no lock held: the Release method of an Owner is the application's code
		lost[i].clear()
		lost[i].rest()
	}
}

// expel is relieve, and returns the queues that were taken from peers.
func (r *Router) expel() (lost []outqueue) {
	t := &r.total
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.room.Load() > 0 {
		return nil // somebody else has just done it
	}
	var all []backlog
	sum := int64(0)
	for _, p := range r.list() {
		if n := p.out.pending(true); n > 0 {
			all = append(all, backlog{p, n})
			sum += int64(n)
		}
	}
	if sum > t.limit {
		slices.SortFunc(all, func(a, b backlog) int { return cmp.Compare(b.bytes, a.bytes) })
	}
	for i := 0; i < len(all) && sum > t.limit; i++ {
		p := all[i].pipe
		sum -= int64(all[i].bytes)
		lost = append(lost, p.out.empty())
		if peer := p.peer.Load(); peer != nil {
			peer.Disconnect(ErrSlowPeer)
		}
	}
	t.room.Store(max(t.limit-sum, t.limit/totalStep, 1))
	return lost
}
