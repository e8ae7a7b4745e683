package chp

import (
	"bytes"
	"slices"
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
// anywhere and go on later. marks, if not nil, takes the place of the cut's live
// maps.
type walk struct {
	pins  []pin
	marks [][]uint64

	pin   int
	block int    // of the pin, the next one
	word  uint64 // bits of the block before it whose records are yet to come
	at    uint32 // where the next record of that block begins
}

// next returns the next record.
func (w *walk) next() (r record, ok bool) {
	for {
		for w.word == 0 {
			if w.pin == len(w.pins) {
				return nil, false
			}
			marks := w.pins[w.pin].marks
			if w.marks != nil {
				marks = w.marks[w.pin]
			}
			if w.block == len(marks) {
				w.pin, w.block = w.pin+1, 0
				continue
			}
			w.word = marks[w.block]
			w.at = uint32(w.block)<<blockBits + uint32(w.pins[w.pin].seg.anchors[w.block])
			w.block++
		}
		r := w.pins[w.pin].seg.record(w.at)
		size := r.size()
		bit := uint64(1) << (w.at >> granuleBits & 63)
		w.at += uint32(size)
		if w.word&bit != 0 {
			w.word &^= bit
			return r[:size:size], true
		}
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
//     same there is nothing to tell, otherwise an OpSet. Found or not, note in a
//     copy of before's live maps that this key goes on to live, by clearing
//     its bit.
//  2. The bits that are left in the copy are the keys that are gone: an
//     OpDelete each.
//
// The copy has one bit for 16 octets of log. Equal sequences are no sign of
// equal values: two servers, or two runs of one, may give the same number to
// different updates.
type change struct {
	before *frozen // nil at the beginning of a watch
	after  *frozen
	synced bool // OpSynced comes at the end

	sets    walk
	deletes walk
	left    [][]uint64       // by pin: before's live maps, less what lives on
	pinOf   map[*segment]int // of before
	pass    int
}

// open begins the walk. The change is not to be copied any more.
func (d *change) open() {
	d.sets = walk{pins: d.after.cut.pins}
	if d.before == nil {
		return
	}
	pins := d.before.cut.pins
	d.left = make([][]uint64, len(pins))
	d.pinOf = make(map[*segment]int, len(pins))
	for i, p := range pins {
		d.left[i] = slices.Clone(p.marks)
		d.pinOf[p.seg] = i
	}
	d.deletes = walk{pins: pins, marks: d.left}
}

// next returns the next event for a watch of the given subtrees, false at the
// end.
func (d *change) next(of *subtrees) (Event, bool) {
	for d.pass == 0 {
		r, ok := d.sets.next()
		if !ok {
			d.pass++
			break
		}
		if !of.all() && !of.holds(r.key()) {
			continue
		}
		if d.before == nil || d.differs(r) {
			e, _ := eventOf(r)
			return e, true
		}
	}
	for d.pass == 1 && d.before != nil {
		r, ok := d.deletes.next()
		if !ok {
			break
		}
		if key := r.key(); of.all() || of.holds(key) {
			return Event{Op: OpDelete, Key: key, Sequence: d.after.seq}, true
		}
	}
	if d.pass++; d.pass == 2 && d.synced {
		return Event{Op: OpSynced, Sequence: d.after.seq}, true
	}
	return Event{}, false
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
		offset := at.offset()
		d.left[i][offset>>blockBits] &^= 1 << (offset >> granuleBits & 63)
	}
	return !bytes.Equal(old.value(), r.value())
}

// release gives back what the change holds on to.
func (d *change) release() {
	d.before.release()
	d.after.release()
	*d = change{}
}
