package chp

import (
	"math/bits"
	"sync/atomic"

	"clustermap/internal/invariants"
)

const (
	// segmentBits bounds the octets of an ordinary segment, and thereby the
	// share of a location that is an offset.
	segmentBits = 21
	maxSegment  = 1 << segmentBits

	// ownSegment is the size from which a record that does not fit the head
	// gets a segment of its own instead of wasting what is left of the head.
	ownSegment = maxSegment / 4

	// granule is the unit of the live map: no two records begin in the same 16
	// octets, since the smallest has minRecord.
	granuleBits = 4
)

// location says where a record begins: id of its segment and offset in it. It
// fits the 48 bits that an index slot has for it.
type location uint64

const locationBits = 48

func (l location) id() uint32     { return uint32(l >> segmentBits) }
func (l location) offset() uint32 { return uint32(l) & (maxSegment - 1) }

// segment is a stretch of the log: whole records one behind the other. It has no
// pointers in its octets, so the garbage collector does not look inside.
//
// Octets are written once, by the store's writer, in the part that no reader
// knows of yet; an index slot or a piece makes them known, and from then on they
// are constant until the segment is recycled.
type segment struct {
	buf []byte

	// Readers load buf for every get. What the writer changes for every record,
	// and what borrowers count, stay off its cache line.
	_ [104]byte

	// Owned by the writer.
	id     uint32
	used   uint32   // octets appended
	live   int32    // records that the index points to
	octets int      // octets of those
	marks  []uint64 // live map: one bit a granule, set where a live record begins
	frozen bool     // a cut shares marks: copy them before the next change
	sealed bool     // nothing is appended any more

	_ [72]byte

	refs atomic.Int64 // borrowers, beside the store itself
}

func newSegment(size int) *segment {
	invariants.Assert(size >= minRecord, "segment holds a record")
	marked := min(size, maxSegment)
	return &segment{
		buf:   allocate(size),
		marks: make([]uint64, (marked>>granuleBits+64)/64),
	}
}

// Retain adds a borrower: the octets of the segment stay as they are until it
// calls Release. Only who borrows already, or is about to get a piece of the
// segment from the store's writer, may call it. Safe for concurrent use.
func (s *segment) Retain() { s.refs.Add(1) }

// Release ends one Retain. Forgetting it keeps the segment from being recycled,
// and no more. Safe for concurrent use.
func (s *segment) Release() {
	n := s.refs.Add(-1)
	invariants.Assert(n >= 0, "segment released once for every retain")
}

// room returns the octets that can still be appended.
func (s *segment) room() int { return len(s.buf) - int(s.used) }

// record returns the record at offset, with all that follows it in the segment.
func (s *segment) record(offset uint32) record { return record(s.buf[offset:]) }

// mark notes that the record of size octets at offset is live.
func (s *segment) mark(offset uint32, size int) {
	if s.frozen {
		s.thaw()
	}
	s.marks[offset>>(granuleBits+6)] |= 1 << (offset >> granuleBits & 63)
	s.live++
	s.octets += size
}

// unmark notes that the record of size octets at offset is live no more.
func (s *segment) unmark(offset uint32, size int) {
	if s.frozen {
		s.thaw()
	}
	invariants.Assert(s.marked(offset), "only a live record dies")
	s.marks[offset>>(granuleBits+6)] &^= 1 << (offset >> granuleBits & 63)
	s.live--
	s.octets -= size
}

// marked reports whether the record at offset is live.
func (s *segment) marked(offset uint32) bool { return marked(s.marks, offset) }

func marked(marks []uint64, offset uint32) bool {
	return marks[offset>>(granuleBits+6)]>>(offset>>granuleBits&63)&1 != 0
}

// thaw gives the segment a live map of its own again.
func (s *segment) thaw() {
	s.marks = append(make([]uint64, 0, len(s.marks)), s.marks...)
	s.frozen = false
}

// reset makes the segment as good as new, for another life in the log.
func (s *segment) reset() {
	invariants.Assert(s.live == 0 && s.octets == 0 && !s.frozen, "only a dead segment is recycled")
	if invariants.Enabled {
		for _, word := range s.marks {
			invariants.Assert(word == 0, "a dead segment has no live record")
		}
	}
	invariants.Poison(s.buf)
	s.used = 0
	s.sealed = false
}

// powerOfTwo returns the smallest power of two that is at least n.
func powerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
