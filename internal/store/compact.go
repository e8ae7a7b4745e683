package store

import (
	"sync/atomic"
	"unsafe"

	"clustermap/internal/invariants"
	"clustermap/internal/kvmsg"
)

// Compaction copies the live records of a mostly dead segment to another one, so that
// the segment can be recycled. It bounds a large log to one and a half times the live
// bytes plus a few segments (log.limit). It works in small steps: each call of the writer
// does an amount of work proportional to the bytes that it appends.
//
// Records are copied unchanged: sequences do not change and nothing is published.
// Readers find the old copy or the new one. The live bits tell which records are live.
// Skipping a dead record means reading its lengths if its block has a live one, and
// costs nothing otherwise.
type compaction struct {
	seg    *Segment // being compacted, or nil
	next   int      // the next block to check
	credit int      // bytes that may be checked or copied; negative after large records
	moved  uint64   // bytes copied so far

	// The live records of a step. A field, so that it need not be allocated for each.
	found []survivor
}

// survivor is a live record of the segment being compacted.
type survivor struct {
	record kvmsg.Record
	hash   uint64 // of its key
	offset uint32
}

// survive appends a live record of the victim to found, pays for copying it, and prefetches
// its slot.
func (s *Map) survive(r kvmsg.Record, offset uint32) bool {
	v, hash := &s.log.victim, kvmsg.HashKey(r.Key())
	s.prefetchSlot(hash)
	v.found = append(v.found, survivor{record: r, hash: hash, offset: offset})
	v.credit -= len(r)
	return true
}

// cacheLine is the size of a cache line in bytes.
const cacheLine = 64

// compact does the share of compaction for size bytes that are about to be appended. Credit
// that is left when there is nothing to compact is lost.
func (s *Map) compact(size int) {
	l, v := &s.log, &s.log.victim
	if v.seg == nil {
		v.credit = 0
	}
	// A call may append more than a victim gives back, and then needs several.
	for v.credit += compactPace*size + kvmsg.MinRecord; v.credit > 0; {
		if v.seg == nil && (l.bytes <= l.limit() || !s.chooseVictim()) {
			return
		}
		s.compactStep()
	}
}

// Tidy does the work of compact and reclaim while nothing is appended. It checks about
// size bytes and reports whether there is more to do.
func (s *Map) Tidy(size int) (more bool) {
	l := &s.log
	l.round++
	l.burst -= l.burst >> 6
	l.reclaim()
	l.trim()
	v := &l.victim
	for v.credit = size; v.credit > 0; {
		if v.seg == nil && (l.bytes <= l.limit() || !s.chooseVictim()) {
			v.credit = 0
			return false
		}
		s.compactStep()
	}
	return true
}

// Tidied reports whether Tidy has nothing left to do.
func (s *Map) Tidied() bool {
	l := &s.log
	return l.bytes <= l.limit() && l.retiredSize <= l.spare() && l.freeSize <= l.keep() && l.burst <= maxSegment
}

// chooseVictim selects the sealed segment with the smallest share of live bytes. Records
// that are not linked cannot be moved, since pieces refer to them.
func (s *Map) chooseVictim() bool {
	v := &s.log.victim
	// A segment that is three quarters live is not worth copying. One that was made for a
	// single record is fuller than that, so each victim makes the log smaller.
	best := 0.75
	s.log.each(func(seg *Segment) {
		if share := float64(seg.bytes) / float64(len(seg.buf)); seg.sealed && seg.unlinked == 0 && share < best {
			best, v.seg = share, seg
		}
	})
	v.next = 0
	return v.seg != nil
}

// compactStep moves the live records of the next blocks of the victim: of one, or of as
// many as there is credit for and the processor can prefetch slots for. When the last
// live record is moved the victim retires, and there is no victim.
func (s *Map) compactStep() {
	v := &s.log.victim
	from := v.seg
	if v.found == nil {
		v.found = make([]survivor, 0, compactAhead+blockSize>>granuleBits)
	}
	v.found = v.found[:0]
	for left := from.live; left > 0 && v.credit > 0 && len(v.found) < compactAhead; {
		before := len(v.found)
		from.prefetchBlock(v.next + blocksAhead)
		from.records(from.blocks, v.next, s.survive)
		v.next++
		v.credit -= blockSize
		left -= int32(len(v.found) - before)
	}
	for i := range v.found {
		f := &v.found[i]
		s.move(from, f)
		v.moved += uint64(len(f.record))
	}
	clear(v.found)
}

// prefetchBlock prefetches the records of block n if one of them is live. The size of a
// record has to be read before it is known where the next one begins.
func (s *Segment) prefetchBlock(n int) {
	if n >= len(s.blocks) || s.blocks[n].live == 0 {
		return
	}
	for at := n << blockBits; at < min((n+1)<<blockBits, len(s.buf)); at += cacheLine {
		prefetch(unsafe.Pointer(&s.buf[at]))
	}
}

// move copies a live record to the segment to which compaction appends. A large one that
// does not fit gets a segment of its own, since it may waste most of a shared one.
func (s *Map) move(from *Segment, f *survivor) {
	r := f.record
	to := s.log.moved
	if to == nil || to.room() < len(r) {
		if len(r) <= ownSegment {
			to = s.log.growMoved(len(r))
		} else {
			to = s.log.own(len(r))
		}
	}
	off := to.used
	copy(to.buf[off:], r)
	to.used += uint32(len(r))
	to.anchor(off)
	to.mark(off, len(r))
	s.log.live += len(r)

	s.slotOf(f.hash, locate(from, f.offset)).Store(slotValue(f.hash, locate(to, off)))
	s.log.markDead(from, f.offset, len(r))
}

// slotOf returns the slot that points to a live record, whose key has the given hash. It
// reads no record.
func (x *index) slotOf(hash uint64, at location) *atomic.Uint64 {
	t, value := x.tables[x.shard(hash)].Load(), slotValue(hash, at)
	for p := homeOf(hash); ; p++ {
		slot := &t.slots[p&uint64(len(t.slots)-1)]
		v := slot.Load()
		if v == value {
			return slot
		}
		invariants.Assert(v != slotEmpty, "the index points to a live record")
	}
}
