package chp

import (
	"bytes"
	"sync/atomic"
)

// frozen is the state of a store at one moment, shared by the watches that
// have to tell of it. The last to release it ends the cut.
type frozen struct {
	store *store
	cut   *cut
	seq   int64
	refs  atomic.Int32
}

// freeze cuts a store. The store's lock must be held; the rest of a frozen's
// life needs none.
func freeze(s *store, seq int64) *frozen {
	f := &frozen{store: s, cut: s.cut(), seq: seq}
	f.refs.Store(1)
	return f
}

func (f *frozen) retain() *frozen {
	if f != nil {
		f.refs.Add(1)
	}
	return f
}

func (f *frozen) release() {
	if f != nil && f.refs.Add(-1) == 0 {
		f.cut.release()
	}
}

// walk goes through the records of a cut, in the order of the log, and can stop
// anywhere and go on later. It takes the records of one block of the log at a
// time.
type walk struct {
	pins  []pin
	pin   int
	block int // of the pin, the next one

	found []placed // records of the block before it
	next  int      // of found
	visit func(record, uint32) bool
}

// placed is a record and where it stands: which pin, and where in its segment.
type placed struct {
	record record
	pin    int
	offset uint32
}

func newWalk(pins []pin) *walk {
	w := &walk{pins: pins, found: make([]placed, 0, blockSize>>granuleBits)}
	w.visit = func(r record, offset uint32) bool {
		w.found = append(w.found, placed{r, w.pin, offset})
		return true
	}
	return w
}

// step returns the next record.
func (w *walk) step() (placed, bool) {
	for w.next == len(w.found) {
		if w.pin == len(w.pins) {
			return placed{}, false
		}
		p := &w.pins[w.pin]
		if w.block == len(p.blocks) {
			w.pin, w.block = w.pin+1, 0
			continue
		}
		w.found, w.next = w.found[:0], 0
		p.seg.records(p.blocks, w.block, w.visit)
		w.block++
	}
	w.next++
	return w.found[w.next-1], true
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
// The marks take one bit for 16 octets of log. Equal sequences are no sign of
// equal values: two servers, or two runs of one, may give the same number to
// different updates.
type change struct {
	before *frozen // nil at the beginning of a watch
	after  *frozen
	synced bool // OpSynced comes at the end

	sets    *walk            // of after
	deletes *walk            // of before
	marks   [][]uint64       // by pin of before, a bit a granule
	pinOf   map[*segment]int // of before
	pass    int
}

// open begins the walk. The change is not to be copied any more.
func (d *change) open() {
	d.sets = newWalk(d.after.cut.pins)
	if d.before == nil {
		return
	}
	pins := d.before.cut.pins
	d.deletes = newWalk(pins)
	d.marks = make([][]uint64, len(pins))
	d.pinOf = make(map[*segment]int, len(pins))
	for i, p := range pins {
		granules := min(len(p.seg.buf), maxSegment)>>granuleBits + 1
		d.marks[i] = make([]uint64, (granules+63)/64)
		d.pinOf[p.seg] = i
	}
}

// next puts the next event for a watch of the given subtrees into e, and returns
// false at the end.
func (d *change) next(e *Event, of *subtrees) bool {
	for d.pass == 0 {
		p, ok := d.sets.step()
		if !ok {
			d.pass++
			break
		}
		r := p.record
		if !of.all() && !of.holds(r.key()) {
			continue
		}
		if d.before == nil || d.differs(r) {
			readEvent(e, r)
			if d.before != nil {
				e.Cause = CauseResync
			}
			e.TTL = d.after.store.deadlines.left(r)
			return true
		}
	}
	for d.pass == 1 && d.before != nil {
		p, ok := d.deletes.step()
		if !ok {
			break
		}
		if d.marks[p.pin][p.offset>>granuleBits/64]>>(p.offset>>granuleBits%64)&1 != 0 {
			continue
		}
		if key := p.record.key(); of.all() || of.holds(key) {
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
func (d *change) differs(r record) bool {
	s := d.before.store
	v, _, old := s.search(hashKey(r.key()), r.key())
	if v == 0 {
		return true
	}
	at := slotLocation(v)
	if i, ok := d.pinOf[s.log.segment(at)]; ok {
		granule := at.offset() >> granuleBits
		d.marks[i][granule/64] |= 1 << (granule % 64)
	}
	return !bytes.Equal(old.value(), r.value())
}

// release gives back what the change holds on to.
func (d *change) release() {
	d.before.release()
	d.after.release()
	*d = change{}
}
