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
// retired, when its last live record is dead (and, if it is kept, nobody keeps it any more); free, when no reader can see it and no
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

	// Used by every call of the writer, in one cache line.
	head     *Segment // where updates are appended
	live     int      // bytes of the live records
	unlinked int      // bytes of the pieces that Append has returned and that were not linked yet
	burst    int      // bytes that a call of the writer appends: a decaying maximum
	round    uint64   // counts the calls of the writer
	victim   compaction

	moved   *Segment         // where compaction appends, or nil
	retired []retiredSegment // in the order of retirement
	free    []*Segment       // oldest first

	garbageCollected bool   // the garbage collector frees retired segments: none is recycled
	minSegment       int    // bytes of the smallest segment
	lastID           uint32 // of the segment added last
	segments         int    // segments in use: head, moved, sealed
	bytes            int    // bytes of those
	retiredSize      int    // bytes of the segments in retired
	freeSize         int    // bytes of the segments in free
	recycled         uint64 // number of recycled segments
}

// retiredSegment is a retired segment.
type retiredSegment struct {
	seg    *Segment
	ticket uint64 // grace period that must pass
	round  uint64 // call of the writer in which it retired
}

// segment returns the segment of a location, or nil if the location is stale: the
// segment has retired since the location was read. Then another look-up of the key
// returns another location, or none.
//
// Ids are assigned in turn, so an id comes back when all 2^27 have been used, after a
// terabyte of updates. So a segment with the right id is the right one, whichever
// segments have been at its place in the table.
func (l *log) segment(at location) *Segment {
	table, id := *l.table.Load(), at.id()
	if s := table[int(id)&(len(table)-1)].Load(); s != nil && s.id == id {
		return s
	}
	return nil
}

// has reports whether a retained segment is in use. Any goroutine may call it: it reads
// nothing of another segment at the same place, which may get its next id meanwhile.
func (l *log) has(s *Segment) bool {
	table := *l.table.Load()
	return table[int(s.id)&(len(table)-1)].Load() == s
}

// each calls f for every segment with live records.
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

// segmentSize returns the size of the next segment, for a record of need bytes: an
// eighth of the live bytes, so that slackSegments are about as large as the live bytes;
// at least one burst of the writer, so that it uses few segments; and within the bounds
// of a segment.
func (l *log) segmentSize(need int) int {
	size := max(l.minSegment, l.live/slackSegments, l.burst, 4*need)
	return min(powerOfTwo(size), maxSegment)
}

// grow replaces the head by a segment with room for a record of need bytes.
func (l *log) grow(need int) *Segment {
	if l.head != nil {
		l.seal(l.head)
	}
	l.head = l.addShared(l.segmentSize(need))
	return l.head
}

// growMoved replaces the segment to which compaction appends.
func (l *log) growMoved(need int) *Segment {
	if l.moved != nil {
		l.seal(l.moved)
	}
	l.moved = l.addShared(l.segmentSize(need))
	return l.moved
}

// own returns a segment for one record of need bytes that is too large to share one.
// The size is rounded so that the next large value may fit when the segment is
// recycled. It is at most a third larger than the record, so that compaction has no reason
// to move it.
func (l *log) own(need int) *Segment {
	const unit = 64 << 10
	size := (need + unit - 1) &^ (unit - 1)
	s := l.add(size, max(size, need+need/3))
	s.sealed = true
	return s
}

// addShared adds a segment for many records, of at least size bytes.
func (l *log) addShared(size int) *Segment { return l.add(size, min(4*size, maxSegment)) }

// add adds a segment of size bytes, or a free one of up to most.
func (l *log) add(size, most int) *Segment {
	l.reclaim()
	s := l.reuse(size, most)
	if s == nil {
		l.exchange(size)
		s = newSegment(size)
	}
	l.register(s)
	l.segments++
	l.bytes += len(s.buf)
	return s
}

// register assigns an id to s and stores s in the table. It skips ids whose place in
// the table is in use by a segment that lives long.
func (l *log) register(s *Segment) {
	table := l.table.Load()
	if table == nil || 2*(l.segments+1) > len(*table) {
		table = l.growTable()
	}
	for {
		l.lastID = (l.lastID + 1) & idMask
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
		// Ids that have different low bits still differ with one bit more.
		for i := range *old {
			if s := (*old)[i].Load(); s != nil {
				table[int(s.id)&(size-1)].Store(s)
			}
		}
	}
	l.table.Store(&table)
	return &table
}

// reuse removes and returns a free segment, or nil: the first one that is large enough,
// but not so large that a few records would pin much memory.
func (l *log) reuse(size, most int) *Segment {
	for i, s := range l.free {
		if n := len(s.buf); n >= size && n <= most {
			l.free = slices.Delete(l.free, i, i+1)
			l.freeSize -= n
			l.recycled++
			return s
		}
	}
	return nil
}

// exchange frees the memory of free segments that are smaller than size, about size bytes
// in all, because a new segment of that size is needed. While a map grows, so do its
// segments, and the smaller ones would be of no use any more.
func (l *log) exchange(size int) {
	left := size
	l.free = slices.DeleteFunc(l.free, func(s *Segment) bool {
		n := len(s.buf)
		if n >= size || left <= 0 {
			return false
		}
		left -= n
		l.freeSize -= n
		release(s.buf)
		return true
	})
}

// seal ends appending to s.
func (l *log) seal(s *Segment) {
	s.sealed = true
	l.retireDead(s)
}

// linked records that the records of a piece that Append has returned are linked, or
// dropped.
func (l *log) linked(p Piece) {
	p.Segment.unlinked -= int32(p.Records)
	l.unlinked -= p.Size()
	l.retireDead(p.Segment)
}

// retireDead retires s if it is full and has no record that is live or may still be linked.
func (l *log) retireDead(s *Segment) {
	if s.live == 0 && s.unlinked == 0 && s.sealed {
		l.retire(s)
	}
}

// markDead marks a record of size bytes as dead.
func (l *log) markDead(s *Segment, offset uint32, size int) {
	s.unmark(offset, size)
	l.live -= size
	l.retireDead(s)
}

// retire removes s, which has no live records, from the segments in use.
func (l *log) retire(s *Segment) {
	if l.victim.seg == s {
		l.victim.seg = nil // its last records were overwritten
	}
	table := *l.table.Load()
	table[int(s.id)&(len(table)-1)].Store(nil)
	l.segments--
	l.bytes -= len(s.buf)
	switch {
	case l.garbageCollected:
	case s.kept > 0:
		s.left = true
	default:
		l.leave(s)
	}
}

// leave puts a segment that the log no longer uses where reclaim finds it.
func (l *log) leave(s *Segment) {
	l.retiredSize += len(s.buf)
	l.retired = append(l.retired, retiredSegment{seg: s, ticket: readers.ticket(), round: l.round})
}

// reclaim recycles the retired segments that no reader or reference uses any more. It
// does not wait.
func (l *log) reclaim() {
	if len(l.retired) == 0 {
		return
	}
	spare, keep := l.spare(), l.keep()
	kept := l.retired[:0]
	for _, r := range l.retired {
		switch {
		case r.round == l.round:
			// Pieces of this call may be in it.
			kept = append(kept, r)
		case r.seg.refs.Load() == 0 && readers.passed(r.ticket):
			l.retiredSize -= len(r.seg.buf)
			l.recycle(r.seg, keep)
		case l.retiredSize > spare:
			// A reader is stuck, or many segments are retained. The garbage
			// collector frees this one when they are done.
			l.retiredSize -= len(r.seg.buf)
		default:
			kept = append(kept, r)
		}
	}
	clear(l.retired[len(kept):])
	l.retired = kept
}

// limit returns the size of the log above which compaction works: one and a half times
// the live bytes, and a few segments, or two of the largest. A small log may have twice
// the live bytes, since its memory matters less than the time of compaction. What is not
// linked yet comes on top: the records that it replaces are still live, and would be copied
// only to die.
func (l *log) limit() int {
	return l.unlinked + l.live + max(l.live/2, min(l.live, maxSlack)) + min(slackSegments*l.segmentSize(0), maxSlack/2)
}

// spare returns the bound on the bytes of retired segments. It is as large as what cuts
// may hold while the whole map is overwritten twice: the memory of a segment that is left to
// the garbage collector returns to the system only after the heap has doubled.
func (l *log) spare() int {
	return 2*l.bytes + slackSegments/2*l.segmentSize(0)
}

// keep returns the bound on the bytes of free segments: what the log may grow before
// compaction begins, or the retired segments that may become free together, and a few
// more.
func (l *log) keep() int {
	return max(l.limit()-l.bytes, min(l.bytes/2, 2*maxSegment)) + slackSegments/2*l.segmentSize(0)
}

// recycle resets s and keeps it for reuse, or frees its memory if there is enough.
func (l *log) recycle(s *Segment, keep int) {
	if len(s.buf) > max(maxSegment, keep) || len(s.buf)/4 > l.segmentSize(0) && len(s.buf) <= maxSegment {
		release(s.buf)
		return
	}
	s.reset()
	l.free = append(l.free, s)
	l.freeSize += len(s.buf)
	l.trim()
}

// trim frees segments beyond keep bytes, except the last one. The oldest ones go
// first: their sizes are no longer needed.
func (l *log) trim() {
	drop, keep := 0, l.keep()
	for l.freeSize > keep && drop < len(l.free)-1 {
		l.freeSize -= len(l.free[drop].buf)
		release(l.free[drop].buf)
		drop++
	}
	l.free = slices.Delete(l.free, 0, drop)
}
