package order

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// Local makes the updates of the server's own process. It delays them as the collector
// delays those of clients. It is safe for concurrent use.
type Local struct {
	q *Sequencer

	mu   sync.Mutex
	pace *Pacer
	turn chan struct{} // capacity 1: held by the goroutine that is delayed, so that delays add up

	waiting atomic.Int64 // goroutines that wait until the sequencer accepts updates

	// Elsewhere, if not nil, is the way to the server that orders updates: this one is of a cluster. It must not be set
	// later than the first use.
	Elsewhere Elsewhere
}

// Elsewhere has updates and requests of this process ordered by the server of the cluster that does so: see package member.
// What the methods return is so in the map of this server, too.
type Elsewhere interface {
	// Relays reports whether updates go to another server, or have to wait for what went there.
	Relays() bool
	// Apply returns the sequence of the last update, and the number of those that the map has no room for.
	Apply(ctx context.Context, wire []byte, spans []buf.Span) (last int64, unfit int, err error)
	// Transact is also for the server that leads: what it says of conditions that do not hold needs a majority.
	Transact(ctx context.Context, r *txn.Request, by string) (txn.Answer, error)
	Lease(ctx context.Context, kind wire.LeaseKind, id kvmsg.LeaseID) (left time.Duration, err error)
}

// Init makes l the way of updates to q.
func (l *Local) Init(q *Sequencer, p *Pacer) { l.q, l.pace, l.turn = q, p, make(chan struct{}, 1) }

// Waiting reports whether some updates wait until the sequencer accepts them.
func (l *Local) Waiting() bool { return l.waiting.Load() > 0 }

// Apply orders updates that were checked, in parts, as soon as there is room. It does not
// change them. It returns the last one that was accepted, and the number of those that the
// map has no room for. After an error a first part may have been accepted.
func (l *Local) Apply(ctx context.Context, wire []byte, spans []buf.Span) (w Written, unfit int, err error) {
	if len(spans) == 0 {
		l.q.mu.Lock()
		defer l.q.mu.Unlock()
		return l.q.written(), 0, nil
	}
	for len(spans) > 0 {
		n := 1
		for n < len(spans) && spans[n].End-spans[0].Start <= LocalPart {
			n++
		}
		part := spans[:n]
		spans = spans[n:]
		if err := l.wait(ctx, buf.Extent(part)); err != nil {
			return Written{}, 0, err
		}
		var more int
		if w, more, err = l.part(ctx, wire, part); err != nil {
			return Written{}, 0, err
		}
		unfit += more
	}
	return w, unfit, nil
}

// part orders a part of updates, as soon as there is room.
func (l *Local) part(ctx context.Context, wire []byte, part []buf.Span) (w Written, unfit int, err error) {
	for {
		if l.Elsewhere != nil && l.Elsewhere.Relays() {
			either, stop := l.q.untilClosed(ctx)
			defer stop()
			w.Last, unfit, err = l.Elsewhere.Apply(either, wire, part)
			w.shown = true
			return w, unfit, l.ended(ctx, err)
		}
		w, unfit, ok, err := l.q.acceptLocal(wire, part)
		if ok || err != nil && (err != errStandby || l.Elsewhere == nil) {
			return w, unfit, err
		}
		if err := l.room(ctx); err != nil {
			return w, 0, err
		}
	}
}

// ended returns the error of a call with a context that also ends when the sequencer is shut.
func (l *Local) ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && l.q.closing.Err() != nil {
		return errClosed
	}
	return err
}

// next is Pacer.Next for several goroutines.
func (l *Local) next(size int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pace.next(size, time.Now())
}

// wait waits before a batch of size bytes if subscribers need it.
func (l *Local) wait(ctx context.Context, size int) error {
	wait := l.next(size)
	if wait == 0 {
		return nil
	}
	either, stop := l.q.untilClosed(ctx)
	defer stop()
	select {
	case l.turn <- struct{}{}:
	case <-either.Done():
		return cmp.Or(ctx.Err(), errClosed)
	}
	defer func() { <-l.turn }()
	for ; wait > 0; wait = l.next(0) {
		if !wake.Pause(either, wait) {
			return cmp.Or(ctx.Err(), errClosed)
		}
	}
	return nil
}

// room waits until the sequencer may accept another batch.
func (l *Local) room(ctx context.Context) error {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	either, stop := l.q.untilClosed(ctx)
	defer stop()
	if l.q.Room(either) != nil && either.Err() != nil {
		return cmp.Or(ctx.Err(), errClosed)
	}
	return nil // if the journal has failed, acceptLocal returns its error
}

// untilClosed returns a context that also ends when the sequencer is shut.
func (q *Sequencer) untilClosed(ctx context.Context) (_ context.Context, stop func()) {
	ctx, end := context.WithCancel(ctx)
	unhook := context.AfterFunc(q.closing, end)
	return ctx, func() {
		unhook()
		end()
	}
}

// acceptLocal orders updates, and publishes them if nothing has to be waited for. It does
// not change the spans, and returns the number of updates that the map has no room for.
// If ok is false, it did nothing: the caller must call Local.room, and acceptLocal again.
func (q *Sequencer) acceptLocal(wire []byte, spans []buf.Span) (w Written, unfit int, ok bool, err error) {
	if ok, err := q.roomNow(); !ok || err != nil {
		return Written{}, 0, false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok, err := q.accepts(spans); !ok || err != nil {
		return Written{}, 0, false, err
	}
	q.scratch.own = append(q.scratch.own[:0], spans...) // acceptNow changes them
	refused, _ := q.acceptNow(wire, q.scratch.own, From{})
	if cap(q.scratch.own) > keepOwn {
		q.scratch.own = nil
	}
	return q.made(), len(refused), true, nil
}

// roomNow reports whether the journal can take a batch. If it has failed, it returns the error
// for an update.
func (q *Sequencer) roomNow() (ok bool, err error) {
	if err := q.journal.Room(wake.Ended); err == context.Canceled { // as Ended is
		return false, nil
	} else if err != nil {
		return false, q.failure(err)
	}
	return true, nil
}

// accepts reports whether updates of this process can be ordered now, or returns why they are
// not. mu must be held.
func (q *Sequencer) accepts(spans []buf.Span) (ok bool, err error) {
	switch {
	case q.closing.Err() != nil:
		return false, errClosed
	case q.passive:
		return false, errStandby
	}
	return q.halted == (halted{}) && q.held.bytes < MaxHeld && q.fits(spans, ""), nil
}

// Transact judges a request that was checked as soon as there is room, of this process or of somebody for whom it acts. The
// answer holds when w is published.
func (l *Local) Transact(ctx context.Context, r *txn.Request, from From) (a txn.Answer, w Written, err error) {
	if err := l.wait(ctx, len(r.Updates)); err != nil {
		return a, w, err
	}
	if l.Elsewhere != nil {
		either, stop := l.q.untilClosed(ctx)
		defer stop()
		a, err = l.Elsewhere.Transact(either, r, from.By)
		return a, Written{shown: true}, l.ended(ctx, err)
	}
	for {
		a, w, ok, err := l.q.transactLocal(r, from)
		if ok || err != nil {
			return a, w, err
		}
		if err := l.room(ctx); err != nil {
			return a, w, err
		}
	}
}

// Lease is Sequencer.Leases for one lease, as soon as it can be answered.
func (l *Local) Lease(ctx context.Context, kind wire.LeaseKind, id kvmsg.LeaseID) (left time.Duration, err error) {
	if l.Elsewhere != nil {
		either, stop := l.q.untilClosed(ctx)
		defer stop()
		left, err = l.Elsewhere.Lease(either, kind, id)
		return left, l.ended(ctx, err)
	}
	for {
		l.q.mu.Lock()
		_, err := l.q.accepts(nil)
		l.q.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if left, ok := l.q.Leases(kind, []kvmsg.LeaseID{id}, nil); ok {
			return left[0], nil
		}
		if err := l.room(ctx); err != nil {
			return 0, err
		}
	}
}

// failure returns the error for an update when the journal has ended with err.
func (q *Sequencer) failure(err error) error {
	if q.closing.Err() != nil {
		return errClosed
	}
	return fmt.Errorf("chp: the log failed: %w", err)
}

// Written identifies an update that a sequencer has accepted.
type Written struct {
	Last int64  // its sequence
	Term uint64 // of the cluster, at that time
	term uint64 // ends.count

	shown bool // it is published
}

// written returns the last update that was accepted. The mutex must be held.
func (q *Sequencer) written() Written {
	if q.passive { // what is held is not published by this server
		return Written{Last: q.state.Last(), Term: q.order.reigns.Present, term: q.ends.count}
	}
	return Written{Last: q.order.last, Term: q.order.reigns.Present, term: q.ends.count}
}

// made returns the last of the updates that were ordered just now. If the journal has not taken them, they are not going to be
// published. The mutex must be held.
func (q *Sequencer) made() Written {
	if q.passive && q.o.Cluster {
		return Written{Last: math.MaxInt64, Term: q.order.reigns.Present, term: q.ends.count - 1}
	}
	return q.written()
}

// Flush waits until all that was accepted is published. If updates were lost when an earlier
// term ended, it returns an error instead, once.
func (q *Sequencer) Flush(ctx context.Context) error {
	w, err := q.unreported()
	if err != nil {
		return err
	}
	if err = q.Published(ctx, w); err == errUnpublished {
		_, _ = q.unreported() // this call reports it
	}
	return err
}

// unreported returns the last update that was accepted, or an error, once, if updates were
// lost when an earlier term ended.
func (q *Sequencer) unreported() (Written, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ends.lost {
		q.ends.lost = false
		return Written{}, errUnpublished
	}
	return q.written(), nil
}

// Published waits until an update is published.
func (q *Sequencer) Published(ctx context.Context, w Written) error {
	for {
		more, err := q.outcome(w)
		if more == nil {
			return err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		case <-q.journal.Failed(): // a server that does not serve may never be closed
			return q.failure(q.journal.Room(wake.Ended))
		case <-q.closing.Done():
			return errClosed
		}
	}
}

// Caught waits until all updates that are ordered now are published, or the server is
// passive and publishes nothing.
func (q *Sequencer) Caught(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := q.written(); !q.passive && !q.held.empty() && q.state.Last() < w.Last; {
		more := q.more()
		q.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		q.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// errUnpublished is returned for an update that was not published when the server
// stopped being the active one.
var errUnpublished = fmt.Errorf("%w: %w", ledger.ErrUncertain, errStandby)

// outcome returns whether an update was published, or a channel that is closed when the
// caller should ask again.
func (q *Sequencer) outcome(w Written) (more <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case w.shown, q.ends.count == w.term && q.state.Last() >= w.Last, q.ends.count == w.term+1 && q.ends.kept >= w.Last:
		return nil, nil
	case q.ends.count != w.term:
		return nil, errUnpublished
	}
	return q.more(), nil
}

// Shut refuses updates of this process, and ends its watches.
func (q *Sequencer) Shut() {
	q.mu.Lock()
	q.end()
	q.mu.Unlock()
	q.live.Close()
}

// Term counts the terms of this server as the active one that have ended.
func (q *Sequencer) Term() uint64 { return q.terms.Load() }
