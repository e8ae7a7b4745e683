package chp

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// leases are the leases that a client holds. However many there are, one goroutine renews them, and one
// ends those whose time is over: it waits for nothing else, so that holders learn that in time.
type leases struct {
	// ask asks the server to renew some.
	ask func(ctx context.Context, ids []kvmsg.LeaseID, left []time.Duration) (sent time.Time, err error)

	running sync.WaitGroup
	fresh   [2]chan struct{} // capacity 1, of each heap; a lease is new

	mu     sync.Mutex
	heaps  [2]leaseHeap // byDeadline has all that are held; byDue those that are not being renewed
	runs   bool
	closed bool
}

// What Lease.when has, and the heaps are sorted by.
const (
	byDeadline = iota // until when the lease lasts at least
	byDue             // when it is to be renewed
)

func (h *leases) setUp(ask func(context.Context, []kvmsg.LeaseID, []time.Duration) (time.Time, error)) {
	h.ask = ask
	for i := range h.heaps {
		h.heaps[i].by, h.fresh[i] = i, make(chan struct{}, 1)
	}
}

// hold takes a lease whose renewals begin, until the context ends.
func (h *leases) hold(ctx context.Context, l *Lease) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	for i := range h.heaps {
		heap.Push(&h.heaps[i], l)
		wake.Signal(h.fresh[i])
	}
	if !h.runs {
		h.runs = true
		h.running.Go(func() { h.runEnds(ctx) })
		h.running.Go(func() { h.runRenewals(ctx) })
	}
	return nil
}

// grant gives a lease its time, from when the message was sent that the server has confirmed. The holder has
// less of it than the server.
func (l *Lease) grant(sent time.Time) {
	l.when[byDeadline], l.when[byDue] = sent.Add(l.ttl-l.ttl/leaseMargin), sent.Add(l.ttl/3)
}

// end ends a lease, unless it has ended. mu must be held.
func (h *leases) end(l *Lease, err error) {
	if l.err != nil {
		return
	}
	l.err = err
	close(l.done)
	for i := range h.heaps {
		h.heaps[i].remove(l)
	}
}

// close ends all leases; the server does so at their time.
func (h *leases) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for all := &h.heaps[byDeadline]; all.Len() > 0; {
		h.end(all.leases[0], ErrClosed)
	}
}

// wait waits until the first lease of a heap has come to its time, or there may be another one. For the one
// that ends leases that is at their deadline.
func (h *leases) wait(ctx context.Context, by int, timer *time.Timer) bool {
	h.mu.Lock()
	if first := h.heaps[by].leases; len(first) > 0 {
		timer.Reset(time.Until(first[0].when[by]))
	} else {
		timer.Stop()
	}
	h.mu.Unlock()
	select {
	case <-timer.C:
	case <-h.fresh[by]:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// runEnds ends leases at their deadlines.
func (h *leases) runEnds(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for h.wait(ctx, byDeadline, timer) {
		h.mu.Lock()
		for all := &h.heaps[byDeadline]; all.Len() > 0 && !time.Now().Before(all.leases[0].when[byDeadline]); {
			h.end(all.leases[0], ErrLeaseEnded)
		}
		h.mu.Unlock()
	}
	h.close()
}

// runRenewals renews leases, the one that is due first with others that are due soon.
func (h *leases) runRenewals(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var some []*Lease
	var ids []kvmsg.LeaseID
	var left []time.Duration
	for h.wait(ctx, byDue, timer) {
		for some = h.next(some[:0]); len(some) > 0 && ctx.Err() == nil; some = h.next(some[:0]) {
			ids, left = ids[:0], left[:0]
			for _, l := range some {
				ids, left = append(ids, l.id), append(left, 0)
			}
			sent, err := h.ask(ctx, ids, left)
			h.renewed(some, left, sent, err)
		}
		clear(some[:cap(some)]) // those that have ended are not kept
	}
}

// next takes the leases that are to be renewed together from those that are due.
func (h *leases) next(some []*Lease) []*Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for all := &h.heaps[byDue]; all.Len() > 0 && len(some) < wire.MaxLeases; {
		l := all.leases[0]
		early := time.Duration(0)
		if len(some) > 0 {
			early = l.ttl / leaseSlack
		}
		if now.Before(l.when[byDue].Add(-early)) {
			break
		}
		all.remove(l)
		some = append(some, l)
	}
	return some
}

// renewed takes what the server says of some leases; err says that it said nothing.
func (h *leases) renewed(some []*Lease, left []time.Duration, sent time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for i, l := range some {
		switch {
		case l.err != nil:
			continue
		case err != nil: // the lease may have time yet
			l.when[byDue] = now.Add(l.ttl / leaseSlack)
		case left[i] <= 0 || !now.Before(l.when[byDeadline]):
			h.end(l, ErrLeaseEnded)
			continue
		default:
			l.grant(sent)
			heap.Fix(&h.heaps[byDeadline], l.places[byDeadline])
		}
		heap.Push(&h.heaps[byDue], l)
	}
}

// leaseHeap is a heap of leases, by one of their times.
type leaseHeap struct {
	by     int
	leases []*Lease
}

func (h *leaseHeap) Len() int { return len(h.leases) }

func (h *leaseHeap) Less(i, j int) bool {
	return h.leases[i].when[h.by].Before(h.leases[j].when[h.by])
}

func (h *leaseHeap) Swap(i, j int) {
	h.leases[i], h.leases[j] = h.leases[j], h.leases[i]
	h.leases[i].places[h.by], h.leases[j].places[h.by] = i, j
}

func (h *leaseHeap) Push(l any) {
	one := l.(*Lease)
	one.places[h.by] = len(h.leases)
	h.leases = append(h.leases, one)
}

func (h *leaseHeap) Pop() any {
	last := len(h.leases) - 1
	l := h.leases[last]
	h.leases[last], h.leases = nil, h.leases[:last]
	l.places[h.by] = -1
	return l
}

// remove removes a lease, if it is there.
func (h *leaseHeap) remove(l *Lease) {
	if at := l.places[h.by]; at >= 0 && at < len(h.leases) && h.leases[at] == l {
		heap.Remove(h, at)
	}
}
