package watch

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/closed"
	"clustermap/internal/kvmsg"
)

// ErrLagged is chp.ErrLagged.
var ErrLagged = errors.New("chp: the watch was not read fast enough")

// errBusy is returned to the second of two goroutines.
var errBusy = errors.New("chp: another goroutine is fetching events of this watch")

// Feed is one watch. Only one goroutine at a time may fetch events; any goroutine may call
// Close.
type Feed struct {
	list      *List
	subtrees  subtree.Set
	queue     queue
	bookmarks bool
	unmarked  bool
	fresh     bool // nothing was reported or queued yet; guarded by the map's lock
	quiet     bool // the state with which the watch begins is not reported; guarded by the map's lock

	turn Turn

	// Owned by whoever has the turn.
	item  item
	bytes []byte // of a piece, not yet reported
	group int64  // sequence of the last update of the transaction of the last record
	after int64  // updates up to this sequence are not reported
}

// Turn says which goroutine may fetch events. It owns what is fetched from, until Finish, or after
// End frees it.
type Turn struct{ state atomic.Uint32 }

// States of a Turn.
const (
	idle  uint32 = iota
	used         // a goroutine is fetching
	ended        // no goroutine may begin to fetch; one that is fetching cleans up
)

// Begin acquires the right to fetch, without waiting.
func (t *Turn) Begin() error {
	switch {
	case t.state.CompareAndSwap(idle, used):
		return nil
	case t.state.Load() == ended:
		return closed.CHP
	}
	return errBusy
}

// Finish releases it. If it returns true, End was called in between, and the caller cleans up.
func (t *Turn) Finish() (over bool) { return !t.state.CompareAndSwap(used, idle) }

// End lets no goroutine begin to fetch. If it returns true, none is fetching, and the caller cleans
// up.
func (t *Turn) End() (free bool) { return t.state.Swap(ended) == idle }

func newFeed(l *List, o Options) *Feed {
	f := &Feed{list: l, subtrees: subtree.New(o.Subtrees), bookmarks: o.Bookmarks, unmarked: o.Unmarked, fresh: true, quiet: o.Quiet, after: math.MinInt64}
	f.queue.limit = l.limit
	f.queue.wake = make(chan struct{}, 1)
	return f
}

// Clear removes what is queued. The map's lock must be held.
func (f *Feed) Clear() { f.queue.clear() }

// Skip makes the watch report no update up to a sequence of the present map: the caller has reported
// them. It is called by the goroutine that fetches events.
func (f *Feed) Skip(sequence int64) { f.after = sequence }

// Subtrees returns the subtrees that the watch reports.
func (f *Feed) Subtrees() []string { return f.subtrees.List }

// restart queues the replacement of the state before by the state after. The map's lock
// must be held.
func (f *Feed) restart(before, after *State) {
	if f.quiet {
		f.quiet, f.fresh = false, false
		if !f.unmarked {
			f.queue.pushMark(after.sequence, true)
		}
		return
	}
	d := &change{after: after.retain()}
	if f.fresh {
		f.fresh = false
		d.synced = true
	} else {
		d.before = before.retain()
	}
	if !f.queue.pushChange(d) {
		f.list.lagged.Add(1)
	}
}

// Next stores the next event in e and waits for it. The event is valid until the next call
// of Next, NextBatch or Close. If the context has ended, Next still returns an event that is
// queued. Other errors than the context's are permanent.
func (f *Feed) Next(ctx context.Context, e *Event) error {
	if err := f.turn.Begin(); err != nil {
		return err
	}
	defer f.finish()
	for !f.step(e) {
		if more, err := f.advance(); err != nil {
			return err
		} else if !more {
			if err := f.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// NextBatch waits for events, stores each one that is queued in e and calls do, until do
// returns false; the others stay queued. The event is valid during the call.
func (f *Feed) NextBatch(ctx context.Context, e *Event, do func() bool) error {
	if err := f.turn.Begin(); err != nil {
		return err
	}
	defer f.finish()
	for any := false; ; {
		for f.step(e) {
			any = true
			if !do() {
				return nil
			}
		}
		more, err := f.advance()
		switch {
		case err != nil:
			return err
		case more:
			if err := ctx.Err(); err != nil {
				return err
			}
		case any:
			return nil
		default:
			if err := f.wait(ctx); err != nil {
				return err
			}
		}
	}
}

// Close ends the watch and frees its memory. A blocked call returns the error of a closed
// map. Close may be called more than once.
func (f *Feed) Close() {
	f.stop(closed.CHP)
	if f.turn.End() {
		f.drop()
	}
}

// stop ends the queue and removes the watch from its list.
func (f *Feed) stop(reason error) {
	f.list.remove(f)
	f.queue.stop(reason)
}

// finish ends a turn.
func (f *Feed) finish() {
	if f.turn.Finish() {
		f.drop()
	}
}

// drop releases the current item.
func (f *Feed) drop() {
	f.item.release()
	f.bytes = nil
}

// step stores the next event of the current item in e, and reports whether there was
// one.
func (f *Feed) step(e *Event) bool {
	switch d := f.item.change; {
	case d != nil:
		return d.next(e, &f.subtrees)
	case f.item.marks:
		f.item.marks = false
		*e = Event{Op: OpBookmark, Sequence: f.item.mark}
		if f.item.synced {
			e.Op = OpSynced
		}
		return f.item.mark >= f.after
	}
	for len(f.bytes) > 0 {
		r := kvmsg.Record(f.bytes)
		f.bytes = f.bytes[e.read(f.bytes):]
		f.join(e, r)
		if e.Sequence > f.after && f.subtrees.Shows(e.Key) {
			f.time(e, r)
			return true
		}
	}
	return false
}

// Past stores the event of an update that came before those of the feed. It is called by the
// goroutine that fetches events, in the order of the updates.
func (f *Feed) Past(e *Event, r kvmsg.Record) {
	e.read(r)
	f.join(e, r)
	f.time(e, r)
}

// join names the transaction of an update.
func (f *Feed) join(e *Event, r kvmsg.Record) {
	if len(e.Properties) > 0 {
		if more := kvmsg.MoreOf(r, kvmsg.TagProperties); more > 0 {
			f.group = e.Sequence + int64(more)
		}
	}
	if e.Sequence <= f.group {
		e.Transaction = f.group
	}
}

// time stores the time that is left.
func (f *Feed) time(e *Event, r kvmsg.Record) {
	if e.Op == OpSet && len(e.Properties) > 0 {
		e.TTL = f.list.remaining(r)
	}
}

// advance replaces the current item, which is used up, by the next one, if there is one.
func (f *Feed) advance() (more bool, err error) {
	f.drop()
	it, ok, err := f.queue.pop()
	if err != nil {
		if errors.Is(err, ErrLagged) {
			f.stop(err) // so that nothing is pushed to it
		}
		return false, err
	}
	if !ok {
		return false, nil
	}
	f.item = it
	switch {
	case it.change != nil:
		f.group, f.after = 0, math.MinInt64
		it.change.open()
	case it.piece.Segment != nil:
		f.bytes = it.piece.Wire()
	}
	return true, nil
}

// wait waits until the queue may have an item.
func (f *Feed) wait(ctx context.Context) error {
	select {
	case <-f.queue.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
