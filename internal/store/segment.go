package store

import (
	"math/bits"
	"sync/atomic"

	"clustermap/internal/buf"
	"clustermap/internal/invariants"
	"clustermap/internal/kvmsg"
)

const (
	// segmentBits is the number of bits of an offset in a location, and bounds the
	// size of an ordinary segment.
	segmentBits = 21

	// A granule is 16 bytes. A record is larger, so at most one begins in each
	// granule. A block is 64 granules, whose live bits are one word.
	granuleBits = 4
	blockBits   = granuleBits + 6
	blockSize   = 1 << blockBits
)

// location is the position of a record: the id of its segment and its offset there. It
// has 48 bits.
type location uint64

const (
	locationBits = 48
	idMask       = 1<<(locationBits-segmentBits) - 1
)

func (l location) id() uint32     { return uint32(l >> segmentBits) }
func (l location) offset() uint32 { return uint32(l) & (maxSegment - 1) }

// Segment is a part of the log: whole records, one after the other. Its bytes contain
// no pointers, so the garbage collector does not scan them.
//
// The store's writer writes each byte once, before a reader knows of it. When an index
// slot or a piece refers to the bytes, they do not change until the segment is
// recycled.
type Segment struct {
	// Constant while a reader can find the segment. Every look-up loads them, so the
	// fields that change often are on other cache lines.
	buf []byte
	id  uint32

	_ [100]byte

	// Owned by the writer.
	used     uint32 // bytes appended
	live     int32  // records that the index points to
	bytes    int    // of those records
	blocks   []block
	anchored uint32 // all blocks below this one have an anchor or no record
	unlinked int32  // records that Append has copied and Link has not linked
	kept     int32  // calls of Keep without one of Drop
	left     bool   // it has retired while it is kept
	shared   bool   // a cut uses blocks too: copy them before the next change
	sealed   bool   // nothing more is appended

	_ [32]byte

	refs atomic.Int64 // references, without that of the store
}

// block describes the records that begin in 1 KiB of a segment.
type block struct {
	live   uint64 // one bit per granule, set where a live record begins
	anchor uint16 // offset of the first record that begins here, live or not
}

// block returns the block of the record at offset.
func (s *Segment) block(offset uint32) *block { return &s.blocks[offset>>blockBits] }

// blockBytes is the size of a block.
const blockBytes = 16

func newSegment(size int) *Segment {
	invariants.Assert(size >= kvmsg.MinRecord, "segment holds a record")
	return &Segment{
		buf:    allocate(size),
		blocks: make([]block, (min(size, maxSegment)+blockSize-1)>>blockBits),
	}
}

// Retain adds a reference: the bytes of the segment do not change until the matching
// Release. The caller must have a reference already, or have just got a piece of the
// segment from the store's writer. Safe for concurrent use.
func (s *Segment) Retain() { s.refs.Add(1) }

// Release undoes one Retain. A reference that is never released only prevents the
// segment from being recycled. Safe for concurrent use.
func (s *Segment) Release() {
	n := s.refs.Add(-1)
	invariants.Assert(n >= 0, "segment released once for every retain")
}

// Size returns the size of the segment, which a reference to any part of it keeps in memory.
func (s *Segment) Size() int { return len(s.buf) }

// room returns the number of bytes that can still be appended.
func (s *Segment) room() int { return len(s.buf) - int(s.used) }

// record returns the record at offset. The result extends to the end of the segment.
func (s *Segment) record(offset uint32) kvmsg.Record { return kvmsg.Record(s.buf[offset:]) }

// anchor records that a record begins at offset, after all others so far.
func (s *Segment) anchor(offset uint32) {
	// The blocks may be shared with a cut, which does not read the anchor of a block
	// without a live record.
	if n := offset >> blockBits; n >= s.anchored {
		s.anchored = n + 1
		s.blocks[n].anchor = uint16(offset & (blockSize - 1))
	}
}

// stamp sets the sequences of records that have been copied, from seq on, unless seq is 0,
// and counts them as not linked. Their positions are those of spans and shift.
func (s *Segment) stamp(shift uint32, spans []buf.Span, seq int64) {
	if s.shared {
		s.unshare()
	}
	for i := range spans {
		off := spans[i].Start + shift
		s.anchor(off)
		if seq > 0 {
			s.record(off).SetSeq(seq)
			seq++
		}
	}
	s.unlinked += int32(len(spans))
}

// mark marks the record of size bytes at offset as live.
func (s *Segment) mark(offset uint32, size int) {
	if s.shared {
		s.unshare()
	}
	s.block(offset).live |= 1 << (offset >> granuleBits & 63)
	s.live++
	s.bytes += size
}

// unmark marks the record of size bytes at offset as dead.
func (s *Segment) unmark(offset uint32, size int) {
	if s.shared {
		s.unshare()
	}
	invariants.Assert(s.marked(offset), "only a live record dies")
	s.block(offset).live &^= 1 << (offset >> granuleBits & 63)
	s.live--
	s.bytes -= size
}

// marked reports whether the record at offset is live.
func (s *Segment) marked(offset uint32) bool {
	return s.block(offset).live>>(offset>>granuleBits&63)&1 != 0
}

// records calls f for the live records that begin in block n of blocks, which are the
// present blocks of s or those at a cut. It stops when f returns false, and then
// returns false. The anchor is the position of the first record, and each record's size
// leads to the next. Blocks without live records cost nothing; they are most of those
// in a segment worth compacting.
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

// unshare replaces blocks by a copy that no cut shares.
func (s *Segment) unshare() {
	s.blocks = append(make([]block, 0, len(s.blocks)), s.blocks...)
	s.shared = false
}

// reset prepares a dead segment for reuse.
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
