package store

import (
	"math/bits"
	"sync/atomic"

	"clustermap/internal/buf"
	"clustermap/internal/invariants"
	"clustermap/internal/kvmsg"
)

const (
	// segmentBits bounds the bytes of an ordinary segment, and thereby the
	// share of a location that is an offset.
	segmentBits = 21
	maxSegment  = 1 << segmentBits

	// ownSegment is the size from which a record that does not fit the head
	// gets a segment of its own instead of wasting what is left of the head.
	ownSegment = maxSegment / 4

	// granule is the unit in which beginnings of records are noted: no two
	// records begin in the same 16 bytes, since the smallest has more. A block
	// is the 64 granules whose bits make a word.
	granuleBits = 4
	blockBits   = granuleBits + 6
	blockSize   = 1 << blockBits
)

// location says where a record begins: id of its segment and offset in it. It
// fits the 48 bits that an index slot has for it.
type location uint64

const (
	locationBits = 48
	maxID        = 1<<(locationBits-segmentBits) - 1
)

func (l location) id() uint32     { return uint32(l >> segmentBits) }
func (l location) offset() uint32 { return uint32(l) & (maxSegment - 1) }

// Segment is a stretch of the log: whole records one behind the other. It has no
// pointers in its bytes, so the garbage collector does not look inside.
//
// Bytes are written once, by the store's writer, in the part that no reader
// knows of yet; an index slot or a piece makes them known, and from then on they
// are constant until the segment is recycled.
type Segment struct {
	// Set before a reader can find the segment. Every get loads them, so what the
	// writer changes for every record, and what borrowers count, is kept off
	// their cache line.
	buf []byte
	id  uint32

	_ [100]byte

	// Owned by the writer.
	used     uint32  // bytes appended
	live     int32   // records that the index points to
	bytes    int     // bytes of those
	blocks   []block // which records are live
	anchored uint32  // blocks that have an anchor, or lie in front of one that has
	shared   bool    // a cut uses the blocks too: copy them before the next change
	sealed   bool    // nothing is appended any more

	_ [48]byte

	refs atomic.Int64 // borrowers, beside the store itself
}

// block is what is known of the records that begin in one KiB of a segment.
type block struct {
	live   uint64 // one bit a granule, set where a live record begins
	anchor uint16 // offset of the first record that begins here, live or not
}

// blockBytes is the memory that a block takes.
const blockBytes = 16

func newSegment(size int) *Segment {
	invariants.Assert(size >= kvmsg.MinRecord, "segment holds a record")
	return &Segment{
		buf:    allocate(size),
		blocks: make([]block, (min(size, maxSegment)+blockSize-1)>>blockBits),
	}
}

// Retain adds a borrower: the bytes of the segment stay as they are until it
// calls Release. Only who borrows already, or is about to get a piece of the
// segment from the store's writer, may call it. Safe for concurrent use.
func (s *Segment) Retain() { s.refs.Add(1) }

// Release ends one Retain. Forgetting it keeps the segment from being recycled,
// and no more. Safe for concurrent use.
func (s *Segment) Release() {
	n := s.refs.Add(-1)
	invariants.Assert(n >= 0, "segment released once for every retain")
}

// room returns the bytes that can still be appended.
func (s *Segment) room() int { return len(s.buf) - int(s.used) }

// record returns the record at offset, with all that follows it in the segment.
func (s *Segment) record(offset uint32) kvmsg.Record { return kvmsg.Record(s.buf[offset:]) }

// anchor notes that a record begins at offset, which is beyond all others so far.
func (s *Segment) anchor(offset uint32) {
	// Also if a cut shares the blocks: it does not look at an anchor without a
	// live record behind it.
	if n := offset >> blockBits; n >= s.anchored {
		s.anchored = n + 1
		s.blocks[n].anchor = uint16(offset & (blockSize - 1))
	}
}

// stamp anchors the records that spans have become, and gives them the sequences
// from seq on unless that is 0. shift turns the offset of a span into one in s.
func (s *Segment) stamp(shift uint32, spans []buf.Span, seq int64) {
	for i := range spans {
		off := spans[i].Start + shift
		s.anchor(off)
		if seq > 0 {
			kvmsg.Record(s.buf[off:]).SetSeq(seq)
			seq++
		}
	}
}

// mark notes that the record of size bytes at offset is live.
func (s *Segment) mark(offset uint32, size int) {
	if s.shared {
		s.thaw()
	}
	s.blocks[offset>>blockBits].live |= 1 << (offset >> granuleBits & 63)
	s.live++
	s.bytes += size
}

// unmark notes that the record of size bytes at offset is live no more.
func (s *Segment) unmark(offset uint32, size int) {
	if s.shared {
		s.thaw()
	}
	invariants.Assert(s.marked(offset), "only a live record dies")
	s.blocks[offset>>blockBits].live &^= 1 << (offset >> granuleBits & 63)
	s.live--
	s.bytes -= size
}

// marked reports whether the record at offset is live.
func (s *Segment) marked(offset uint32) bool {
	return s.blocks[offset>>blockBits].live>>(offset>>granuleBits&63)&1 != 0
}

// records calls f for the live records that begin in block n of blocks, which are
// those of s or what they once were, until f returns false, and reports whether it
// never did. Where a record begins follows from the one before it, and the first
// from the anchor. Blocks in which nothing lives cost nothing, and they are most of
// those in a segment worth compacting.
func (s *Segment) records(blocks []block, n int, f func(r kvmsg.Record, offset uint32) bool) bool {
	live := blocks[n].live
	if live == 0 {
		return true
	}
	for at := uint32(n)<<blockBits + uint32(blocks[n].anchor); ; {
		r := s.record(at)
		size := r.Size()
		if bit := uint64(1) << (at >> granuleBits & 63); live&bit != 0 {
			if !f(r[:size:size], at) {
				return false
			}
			if live &^= bit; live == 0 {
				return true
			}
		}
		at += uint32(size)
	}
}

// thaw gives the segment blocks of its own again.
func (s *Segment) thaw() {
	s.blocks = append(make([]block, 0, len(s.blocks)), s.blocks...)
	s.shared = false
}

// reset makes the segment as good as new, for another life in the log.
func (s *Segment) reset() {
	invariants.Assert(s.live == 0 && s.bytes == 0 && !s.shared, "only a dead segment is recycled")
	if invariants.Enabled {
		for _, b := range s.blocks {
			invariants.Assert(b.live == 0, "a dead segment has no live record")
		}
	}
	invariants.Poison(s.buf)
	s.used, s.anchored = 0, 0
	s.sealed = false
}

// powerOfTwo returns the smallest power of two that is at least n.
func powerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
