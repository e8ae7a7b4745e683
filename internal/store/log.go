package store

import (
	"slices"
	"sync/atomic"
)

// log owns the segments of one store: it allocates new ones, knows which are in use,
// and reclaims those without live records. Only the writer calls its methods; readers
// may call segment.
//
// The states of a segment: head, or target of compaction; sealed, when it is full;
// retired, when its last live record is dead; free, when no reader can see it and no
// reference is left; and head again. No slot and no table points to a retired segment:
// only readers that began before can still see it.
type log struct {
	// table maps the low bits of an id to a segment. Its length is a power of two,
	// and at most half of it is used. The writer sets elements, and replaces a table
	// that is too full by a larger one; a reader may still use the old one.
	//
	// Readers load nothing else from a log. The padding separates it from the cache
	// lines that the writer changes.
	table atomic.Pointer[[]atomic.Pointer[Segment]]
	_     [56]byte

	// What every call of the writer looks at, in one cache line.
	head   *Segment // where updates are appended
	live   int      // bytes of the live records
	burst  int      // what one call of the writer appends: a maximum that fades
	round  uint64   // counts the calls of the writer
	victim compaction

	moved   *Segment   // where compaction appends, once there is any
	retired []retiree  // in the order of retirement
	free    []*Segment // oldest first

	garbageCollected bool   // the garbage collector frees retired segments: none is recycled
	minSegment       int    // bytes of the smallest segment
	lastID           uint32 // of the segment added last
	segments         int    // segments in use: head, moved, sealed
	bytes            int    // bytes of those
	retiredSize      int    // bytes of the segments in retired
	freeSize         int    // bytes of the segments in free
	recycled         uint64 // number of recycled segments
}

// retiree is a segment on its way from sealed to free.
type retiree struct {
	seg    *Segment
	ticket uint64 // grace period that has to pass
	round  uint64 // call of the writer in which it retired
}

const (
	// defaultSegment is the size of a store's first segment: small, since a
	// process may hold thousands of stores with a handful of keys each.
	defaultSegment = 16 << 10

	// slackSegments is how many segments' worth of dead records the log may
	// hold, beside as much again as is live, before compaction begins.
	slackSegments = 8

	// reclaimEvery is after how many calls retired segments are looked at even
	// if no new segment is needed, so that memory comes back after a purge.
	reclaimEvery = 64
)

// segment returns the segment of a location, or nil if the location is stale: the
// segment has retired since the location was read. To look the key up once more
// then gives another location, or none.
//
// Ids are given out in turn, so one comes back when all 2^27 have been used, after
// a terabyte of updates. That a segment has the right id is therefore enough to
// know that it is the right one, whoever has been in its place of the table.
func (l *log) segment(at location) *Segment {
	table, id := *l.table.Load(), at.id()
	if s := table[int(id)&(len(table)-1)].Load(); s != nil && s.id == id {
		return s
	}
	return nil
}

// has reports whether a segment that somebody retains is in use. Readers may call
// it.
func (l *log) has(s *Segment) bool { return l.segment(locate(s, 0)) == s }

// each calls f for every segment in use that has live records.
func (l *log) each(f func(*Segment)) {
	table := l.table.Load()
	if table == nil {
		return
	}
	for i := range *table {
		if s := (*table)[i].Load(); s != nil && s.live > 0 {
			f(s)
		}
	}
}

// begin starts one call of the writer that will append about size bytes. Segments that
// retire during the call are recycled in the next one at the earliest, so the pieces
// that a call returns stay valid until then without a reference.
func (l *log) begin(size int) {
	l.round++
	l.burst = max(size, l.burst-l.burst>>6)
	if l.round%reclaimEvery == 0 && len(l.retired) > 0 {
		l.reclaim()
	}
}

// segmentSize returns the size of the next segment, for a record of need bytes:
// an eighth of what is live, so that slackSegments mean about as much again;
// enough for one burst of the writer, so that it goes through few segments; but
// all in the bounds of a segment.
func (l *log) segmentSize(need int) int {
	size := max(l.minSegment, l.live/slackSegments, l.burst, 4*need)
	return min(powerOfTwo(size), maxSegment)
}

// grow replaces the head by one that has room for a record of need bytes.
func (l *log) grow(need int) *Segment {
	if l.head != nil {
		l.seal(l.head)
	}
	l.head = l.add(l.segmentSize(need))
	return l.head
}

// growMoved does the same for compaction.
func (l *log) growMoved(need int) *Segment {
	if l.moved != nil {
		l.seal(l.moved)
	}
	l.moved = l.add(l.segmentSize(need))
	return l.moved
}

// own returns a segment for one record of need bytes, too big to share. The
// size is rounded so that the next big value may fit when this one is recycled.
func (l *log) own(need int) *Segment {
	const unit = 64 << 10
	s := l.add((need + unit - 1) &^ (unit - 1))
	s.sealed = true
	return s
}

// add brings a segment of at least size bytes into use.
func (l *log) add(size int) *Segment {
	l.reclaim()
	s := l.reuse(size)
	if s == nil {
		s = newSegment(size)
	}
	l.register(s)
	l.segments++
	l.bytes += len(s.buf)
	return s
}

// register gives s an id and puts it into the table. Segments that live long keep
// their places: ids that lead to one of those are passed over.
func (l *log) register(s *Segment) {
	table := l.table.Load()
	if table == nil || 2*(l.segments+1) > len(*table) {
		table = l.growTable()
	}
	for {
		l.lastID = (l.lastID + 1) & maxID
		place := &(*table)[int(l.lastID)&(len(*table)-1)]
		if place.Load() == nil {
			s.id = l.lastID
			place.Store(s)
			return
		}
	}
}

func (l *log) growTable() *[]atomic.Pointer[Segment] {
	size := 4
	old := l.table.Load()
	if old != nil {
		size = 2 * len(*old)
	}
	table := make([]atomic.Pointer[Segment], size)
	if old != nil {
		// Ids that differ in the low bits differ in one bit more.
		for i := range *old {
			if s := (*old)[i].Load(); s != nil {
				table[int(s.id)&(size-1)].Store(s)
			}
		}
	}
	l.table.Store(&table)
	return &table
}

// reuse takes a segment from the free ones: the first that is big enough, but
// not so big that a small record would hold on to a lot of memory.
func (l *log) reuse(size int) *Segment {
	for i, s := range l.free {
		if n := len(s.buf); n >= size && (n <= maxSegment || size > maxSegment) && n/4 <= size {
			l.free = slices.Delete(l.free, i, i+1)
			l.freeSize -= n
			l.recycled++
			return s
		}
	}
	return nil
}

// seal ends the appending to s.
func (l *log) seal(s *Segment) {
	s.sealed = true
	if s.live == 0 {
		l.retire(s)
	}
}

// bury notes that the record of size bytes at a location is dead.
func (l *log) bury(s *Segment, offset uint32, size int) {
	s.unmark(offset, size)
	l.live -= size
	if s.live == 0 && s.sealed {
		l.retire(s)
	}
}

// retire takes s, which has nothing live, out of use.
func (l *log) retire(s *Segment) {
	if l.victim.seg == s {
		l.victim.seg = nil // all of it has been overwritten meanwhile
	}
	table := *l.table.Load()
	table[int(s.id)&(len(table)-1)].Store(nil)
	l.segments--
	l.bytes -= len(s.buf)
	if l.garbageCollected {
		return
	}
	l.retiredSize += len(s.buf)
	l.retired = append(l.retired, retiree{seg: s, ticket: readers.ticket(), round: l.round})
}

// reclaim recycles the retired segments that no reader or reference uses any more. It
// does not wait.
func (l *log) reclaim() {
	if len(l.retired) == 0 {
		return
	}
	spare := l.spare()
	kept := l.retired[:0]
	for _, r := range l.retired {
		switch {
		case r.round == l.round:
			// Pieces of this call may be in it.
			kept = append(kept, r)
		case r.seg.refs.Load() == 0 && readers.passed(r.ticket):
			l.retiredSize -= len(r.seg.buf)
			l.recycle(r.seg, spare)
		case l.retiredSize > spare:
			// A reader that does not move, or borrowers that keep much. Let
			// go: the garbage collector takes it when they are done.
			l.retiredSize -= len(r.seg.buf)
		default:
			kept = append(kept, r)
		}
	}
	clear(l.retired[len(kept):])
	l.retired = kept
}

// spare bounds the bytes of the retired segments, and those of the free ones.
func (l *log) spare() int {
	return l.bytes/2 + slackSegments/2*l.segmentSize(0)
}

// recycle keeps s for another use, or gives its memory back if there is enough.
func (l *log) recycle(s *Segment, spare int) {
	if len(s.buf) > max(maxSegment, spare) || len(s.buf)/4 > l.segmentSize(0) && len(s.buf) <= maxSegment {
		release(s.buf)
		return
	}
	s.reset()
	l.free = append(l.free, s)
	l.freeSize += len(s.buf)
	l.trim(spare)
}

// trim gives back free segments beyond spare bytes, but for the last one. The
// oldest go first, for they have the sizes that nobody asks for any more.
func (l *log) trim(spare int) {
	drop := 0
	for l.freeSize > spare && drop < len(l.free)-1 {
		l.freeSize -= len(l.free[drop].buf)
		release(l.free[drop].buf)
		drop++
	}
	l.free = slices.Delete(l.free, 0, drop)
}
