package chp

import (
	"math/bits"
	"sync/atomic"

	"clustermap/internal/invariants"
	"clustermap/sockets"
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
	// octets, since the smallest has more. The 64 granules that share a word of
	// the map are a block.
	granuleBits = 4
	blockBits   = granuleBits + 6
	blockSize   = 1 << blockBits
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
	id      uint32
	used    uint32   // octets appended
	live    int32    // records that the index points to
	blocks  uint32   // blocks that have an anchor, or lie in front of one
	octets  int      // octets of the live records
	marks   []uint64 // live map: one bit a granule, set where a live record begins
	anchors []uint16 // offset in each block of the first record that begins there
	frozen  bool     // a cut shares marks: copy them before the next change
	sealed  bool     // nothing is appended any more

	_ [40]byte

	refs atomic.Int64 // borrowers, beside the store itself
}

func newSegment(size int) *segment {
	invariants.Assert(size >= minRecord, "segment holds a record")
	blocks := (min(size, maxSegment) + blockSize - 1) >> blockBits
	return &segment{
		buf:     allocate(size),
		marks:   make([]uint64, blocks),
		anchors: make([]uint16, blocks),
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

// anchor notes that a record begins at offset, which is beyond all others so far.
func (s *segment) anchor(offset uint32) {
	if block := offset >> blockBits; block >= s.blocks {
		s.blocks = block + 1
		s.anchors[block] = uint16(offset & (blockSize - 1))
	}
}

// stamp anchors the records that spans have become, and gives them the sequences
// from seq on unless that is 0. shift turns the offset of a span into one in s.
func (s *segment) stamp(shift uint32, spans []sockets.Span, seq int64) {
	for i := range spans {
		off := spans[i].Start + shift
		s.anchor(off)
		if seq > 0 {
			record(s.buf[off:]).setSeq(seq)
			seq++
		}
	}
}

// mark notes that the record of size octets at offset is live.
func (s *segment) mark(offset uint32, size int) {
	if s.frozen {
		s.thaw()
	}
	s.marks[offset>>blockBits] |= 1 << (offset >> granuleBits & 63)
	s.live++
	s.octets += size
}

// unmark notes that the record of size octets at offset is live no more.
func (s *segment) unmark(offset uint32, size int) {
	if s.frozen {
		s.thaw()
	}
	invariants.Assert(s.marked(offset), "only a live record dies")
	s.marks[offset>>blockBits] &^= 1 << (offset >> granuleBits & 63)
	s.live--
	s.octets -= size
}

// marked reports whether the record at offset is live.
func (s *segment) marked(offset uint32) bool {
	return s.marks[offset>>blockBits]>>(offset>>granuleBits&63)&1 != 0
}

// records calls f for the records that begin in a block and whose bit is set in
// word, which is the block's word of a live map of the segment. Where a record
// begins follows from the one before it, the first from the anchor; blocks in
// which nothing lives, most of them in a segment worth compacting, cost nothing.
func (s *segment) records(block uint32, word uint64, f func(r record, offset uint32) bool) bool {
	if word == 0 {
		return true
	}
	for at := block<<blockBits + uint32(s.anchors[block]); ; {
		r := s.record(at)
		size := r.size()
		if bit := uint64(1) << (at >> granuleBits & 63); word&bit != 0 {
			if !f(r[:size:size], at) {
				return false
			}
			if word &^= bit; word == 0 {
				return true
			}
		}
		at += uint32(size)
	}
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
	s.used, s.blocks = 0, 0
	s.sealed = false
}

// powerOfTwo returns the smallest power of two that is at least n.
func powerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
