package watch

import (
	"bytes"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// change lists the events that turn one state into another. A watch reports them first,
// and after each resynchronization.
//
// It runs in the goroutine of the watch while updates continue, and reads only data that
// no longer changes. before is the state of an ended session, which has no writer, so its
// index can be searched. after is a cut of a state that has moved on, whose index cannot.
// Hence two passes:
//
//  1. For each record of after, find the key in before. If it is the same update there is no
//     event, otherwise an OpSet: the key was set again, be it to the same value. If the key exists,
//     mark its record in before.
//  2. Each record of before without a mark is a key that is gone: an OpDelete.
//
// The marks take one bit for 16 bytes of log. Equal sequences do not mean equal updates:
// two servers, or two runs of one, may give the same sequence to different updates.
type change struct {
	before *State // nil at the beginning of a watch
	after  *State
	synced bool // the last event is OpSynced

	sets    *store.Walk  // of after
	deletes *store.Walk  // of before
	marks   *store.Marks // of before
	pass    int
	user    []byte // memory of sameProperties
}

// open begins the walk. The change must not be copied afterwards.
func (d *change) open() {
	d.sets = store.NewWalk(d.after.cut)
	if d.before != nil {
		d.deletes = store.NewWalk(d.before.cut)
		d.marks = store.NewMarks(d.before.of, d.before.cut)
	}
}

// next stores the next event for a watch of the given subtrees in e, and returns false
// at the end.
func (d *change) next(e *Event, of *subtree.Set) bool {
	for d.pass == 0 {
		p, ok := d.sets.Step()
		if !ok {
			d.pass++
			break
		}
		r := p.Record
		if !of.Shows(r.Key()) {
			continue
		}
		if d.before == nil || d.differs(r) {
			e.read(r)
			if d.before != nil {
				e.Cause = CauseResync
			}
			e.TTL = d.after.deadlines.Remaining(r)
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
		if key := p.Record.Key(); of.Shows(key) {
			*e = Event{Op: OpDelete, Cause: CauseResync, Key: key, Sequence: d.after.sequence}
			return true
		}
	}
	if d.pass++; d.pass == 2 && d.synced {
		*e = Event{Op: OpSynced, Sequence: d.after.sequence}
		return true
	}
	return false
}

// differs reports whether r, a record of after, is a change from before, and marks its
// key as still existing.
func (d *change) differs(r kvmsg.Record) bool {
	old := d.marks.Mark(r.Key())
	return old == nil || old.Seq() != r.Seq() || !bytes.Equal(old.Value(), r.Value()) || !d.sameProperties(old.Props(), r.Props())
}

// sameProperties compares properties without the times to live, which are those at two moments.
func (d *change) sameProperties(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	user := kvmsg.AppendUser(d.user[:0], a)
	n := len(user)
	d.user = kvmsg.AppendUser(user, b)
	return bytes.Equal(d.user[:n], d.user[n:])
}

func (d *change) release() {
	d.before.Release()
	d.after.Release()
	*d = change{}
}
