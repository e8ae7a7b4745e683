package chp

import (
	"slices"
	"sync/atomic"
)

// log owns the segments of one store: it hands out new ones, remembers which
// are in use, and takes those back that hold nothing live. All its methods are
// the writer's; only segment may be called by a reader, inside an epoch.
//
// The life of a segment: head, or target of compaction; sealed, when it is
// full; retired, when its last live record has died; free, when readers and
// borrowers have left it; and head again. No slot points to a retired segment:
// it is out of everybody's reach but that of those who are in it already.
type log struct {
	// table maps the id in a location to its segment. The writer sets elements,
	// and puts a bigger table in the place of a full one; a reader may use the
	// old one for as long as it is inside.
	table atomic.Pointer[[]atomic.Pointer[segment]]

	head  *segment // where updates are appended
	moved *segment // where compaction appends, once there is any

	ids     []uint32   // ids to use again
	nextID  uint32     // the first id never used
	retired []retiree  // in the order of retirement
	free    []*segment // oldest first
	victim  compaction

	minSegment  int    // octets of the smallest segment
	octets      int    // octets of the segments in use: head, moved, sealed
	live        int    // octets of the live records in them
	retiredSize int    // octets of the segments in retired
	freeSize    int    // octets of the segments in free
	burst       int    // what one call of the writer appends: a maximum that fades
	round       uint64 // counts the calls of the writer
	recycled    uint64 // counts the segments used again
}

// retiree is a segment on its way from sealed to free.
type retiree struct {
	seg    *segment // nil when it was let go of while readers may be in it
	id     uint32
	left   bool   // readers have left and id is free; only borrowers remain
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

	// collectEvery is after how many calls retired segments are looked at even
	// if no new segment is needed, so that memory comes back after a purge.
	collectEvery = 64
)

// segment returns the segment of l, or nil if the location is stale: the log
// has let go of the segment since the location was read. Looking the key up once
// more then gives another location, or none.
func (l *log) segment(at location) *segment {
	return (*l.table.Load())[at.id()].Load()
}

// each calls f for every segment in use that has live records.
func (l *log) each(f func(*segment)) {
	table := l.table.Load()
	if table == nil {
		return
	}
	for id := range l.nextID {
		if s := (*table)[id].Load(); s != nil && s.live > 0 {
			f(s)
		}
	}
}

// begin opens one call of the writer that will append about size octets.
// Segments that retire during the call are not recycled before the next, so
// pieces handed out by a call stay good until then even if nobody retains them.
func (l *log) begin(size int) {
	l.round++
	l.burst = max(size, l.burst-l.burst>>6)
	if l.round%collectEvery == 0 && len(l.retired) > 0 {
		l.collect()
	}
}

// segmentSize returns the size of the next segment, for a record of need octets:
// an eighth of what is live, so that slackSegments mean about as much again;
// enough for one burst of the writer, so that it goes through few segments; but
// all in the bounds of a segment.
func (l *log) segmentSize(need int) int {
	size := max(l.minSegment, l.live/slackSegments, l.burst, 4*need)
	return min(powerOfTwo(size), maxSegment)
}

// grow replaces the head by one that has room for a record of need octets.
func (l *log) grow(need int) *segment {
	if l.head != nil {
		l.seal(l.head)
	}
	l.head = l.add(l.segmentSize(need))
	return l.head
}

// growMoved does the same for compaction.
func (l *log) growMoved(need int) *segment {
	if l.moved != nil {
		l.seal(l.moved)
	}
	l.moved = l.add(l.segmentSize(need))
	return l.moved
}

// own returns a segment for one record of need octets, too big to share. The
// size is rounded so that the next big value may fit when this one is recycled.
func (l *log) own(need int) *segment {
	const unit = 64 << 10
	s := l.add((need + unit - 1) &^ (unit - 1))
	s.sealed = true
	return s
}

// add brings a segment of at least size octets into use.
func (l *log) add(size int) *segment {
	l.collect()
	s := l.reuse(size)
	if s == nil {
		s = newSegment(size)
	}
	if n := len(l.ids); n > 0 {
		s.id = l.ids[n-1]
		l.ids = l.ids[:n-1]
	} else {
		s.id = l.nextID
		l.nextID++
	}
	table := l.table.Load()
	if table == nil || int(s.id) >= len(*table) {
		bigger := make([]atomic.Pointer[segment], max(4, 2*int(s.id)))
		if table != nil {
			for i := range *table {
				bigger[i].Store((*table)[i].Load())
			}
		}
		table = &bigger
		l.table.Store(table)
	}
	(*table)[s.id].Store(s)
	l.octets += len(s.buf)
	return s
}

// reuse takes a segment from the free ones: the first that is big enough, but
// not so big that a small record would hold on to a lot of memory.
func (l *log) reuse(size int) *segment {
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
func (l *log) seal(s *segment) {
	s.sealed = true
	if s.live == 0 {
		l.retire(s)
	}
}

// bury notes that the record of size octets at a location is dead.
func (l *log) bury(s *segment, offset uint32, size int) {
	s.unmark(offset, size)
	l.live -= size
	if s.live == 0 && s.sealed {
		l.retire(s)
	}
}

// retire takes s, which has nothing live, out of use.
func (l *log) retire(s *segment) {
	if l.victim.seg == s {
		l.victim.seg = nil // all of it has been overwritten meanwhile
	}
	l.octets -= len(s.buf)
	l.retiredSize += len(s.buf)
	l.retired = append(l.retired, retiree{seg: s, id: s.id, ticket: readers.ticket(), round: l.round})
}

// collect frees the retired segments that everybody has left. None of it waits.
func (l *log) collect() {
	if len(l.retired) == 0 {
		return
	}
	table := *l.table.Load()
	spare := l.spare()
	kept := l.retired[:0]
	for _, r := range l.retired {
		if !r.left && r.round != l.round && readers.passed(r.ticket) {
			r.left = true
			table[r.id].Store(nil)
			l.ids = append(l.ids, r.id)
		}
		switch {
		case r.seg == nil:
			if r.left {
				continue
			}
		case r.left && r.seg.refs.Load() == 0:
			l.retiredSize -= len(r.seg.buf)
			l.recycle(r.seg, spare)
			continue
		case l.retiredSize > spare && r.round != l.round:
			// A reader that does not move, or borrowers that keep much. Let
			// go: the garbage collector takes the segment when they are done.
			// A reader that arrives here with a stale location finds nil and
			// looks again; only the id has to wait until there can be none.
			l.retiredSize -= len(r.seg.buf)
			r.seg = nil
			if r.left {
				continue
			}
			table[r.id].Store(nil)
		}
		kept = append(kept, r)
	}
	clear(l.retired[len(kept):])
	l.retired = kept
}

// spare bounds the octets of the retired segments, and those of the free ones.
func (l *log) spare() int {
	return l.octets/2 + slackSegments/2*l.segmentSize(0)
}

// recycle keeps s for another use, or lets it go if there is enough. The oldest
// free ones go first, for they have the sizes that nobody asks for any more.
func (l *log) recycle(s *segment, spare int) {
	if len(s.buf) > max(maxSegment, spare) || len(s.buf)/4 > l.segmentSize(0) && len(s.buf) <= maxSegment {
		return
	}
	s.reset()
	l.free = append(l.free, s)
	l.freeSize += len(s.buf)
	drop := 0
	for l.freeSize > spare && drop < len(l.free)-1 {
		l.freeSize -= len(l.free[drop].buf)
		drop++
	}
	l.free = slices.Delete(l.free, 0, drop)
}
