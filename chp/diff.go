package chp

import (
	"bytes"
	"sync/atomic"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// stateView is the client's state at one moment, shared by the watches that report
// it. The last release ends the cut.
type stateView struct {
	state *replica
	cut   *store.Cut
	seq   int64
	refs  atomic.Int32
}

// newStateView cuts a state. The caller holds the state's lock; using the view needs
// none.
func newStateView(s *replica, seq int64) *stateView {
	f := &stateView{state: s, cut: s.Cut(), seq: seq}
	f.refs.Store(1)
	return f
}

func (f *stateView) retain() *stateView {
	if f != nil {
		f.refs.Add(1)
	}
	return f
}

func (f *stateView) release() {
	if f != nil && f.refs.Add(-1) == 0 {
		f.cut.Release()
	}
}

// change tells how one state becomes another, record by record: what a watch
// reports first, and after each resynchronisation.
//
// It runs in the watch's own goroutine, while updates go on; what it reads does
// not change any more. before is the state of an ended session, which nobody
// writes to, so its index can be searched; after is a cut of a state that has
// moved on, whose index cannot. Hence two passes:
//
//  1. For each record of after, find the key in before. If the value is the
//     same there is nothing to tell, otherwise an OpSet. If the key is there,
//     mark its record in before as one that lives on.
//  2. The records of before that have no mark are the keys that are gone: an
//     OpDelete each.
//
// The marks take one bit for 16 bytes of log. Equal sequences are no sign of
// equal values: two servers, or two runs of one, may give the same number to
// different updates.
type change struct {
	before *stateView // nil at the beginning of a watch
	after  *stateView
	synced bool // OpSynced comes at the end

	sets    *store.Walk  // of after
	deletes *store.Walk  // of before
	marks   *store.Marks // of before
	pass    int
}

// open begins the walk. The change is not to be copied any more.
func (d *change) open() {
	d.sets = store.NewWalk(d.after.cut)
	if d.before != nil {
		d.deletes = store.NewWalk(d.before.cut)
		d.marks = store.NewMarks(&d.before.state.Map, d.before.cut)
	}
}

// next puts the next event for a watch of the given subtrees into e, and returns
// false at the end.
func (d *change) next(e *Event, of *subtrees) bool {
	for d.pass == 0 {
		p, ok := d.sets.Step()
		if !ok {
			d.pass++
			break
		}
		r := p.Record
		if !of.all() && !of.contains(r.Key()) {
			continue
		}
		if d.before == nil || d.differs(r) {
			readEvent(e, r)
			if d.before != nil {
				e.Cause = CauseResync
			}
			e.TTL = d.after.state.deadlines.remaining(r)
			return true
		}
	}
	for d.pass == 1 && d.before != nil {
		p, ok := d.deletes.Step()
		if !ok {
			break
		}
		if d.marks.Has(p) {
			continue
		}
		if key := p.Record.Key(); of.all() || of.contains(key) {
			*e = Event{Op: OpDelete, Cause: CauseResync, Key: key, Sequence: d.after.seq}
			return true
		}
	}
	if d.pass++; d.pass == 2 && d.synced {
		*e = Event{Op: OpSynced, Sequence: d.after.seq}
		return true
	}
	return false
}

// differs says whether r, of after, changes anything for those who know
// before, and notes that its key lives on.
func (d *change) differs(r kvmsg.Record) bool {
	old := d.marks.Mark(r.Key())
	return old == nil || !bytes.Equal(old.Value(), r.Value())
}

// release gives back what the change holds on to.
func (d *change) release() {
	d.before.release()
	d.after.release()
	*d = change{}
}
