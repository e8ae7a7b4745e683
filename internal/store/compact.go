package store

import (
	"sync/atomic"

	"clustermap/internal/invariants"
	"clustermap/internal/kvmsg"
)

// Compaction copies the live records of a mostly dead segment to another one, so that
// the segment can be recycled. It bounds the log to twice the live bytes plus a few
// segments. It works in small steps: each call of the writer does an amount of work
// proportional to what it appends.
//
// Records are copied unchanged: sequences do not change and nothing is published.
// Readers find the old copy or the new one. The live bits tell which records are live.
// Skipping a dead record means reading its lengths if its block has a live one, and
// costs nothing otherwise.
type compaction struct {
	seg    *Segment // being compacted, or nil
	next   int      // the next block to check
	credit int      // bytes that may be checked; negative after large records
	moved  uint64   // bytes copied so far

	// The live records of a block. A field, so that it need not be allocated for each.
	found []survivor
}

// survivor is a live record of the segment being compacted.
type survivor struct {
	record kvmsg.Record
	hash   uint64 // of its key
	offset uint32
}

// find appends a record to found.
func (c *compaction) find(r kvmsg.Record, offset uint32) bool {
	c.found = append(c.found, survivor{record: r, offset: offset})
	return true
}

// compactPace is the number of bytes checked for each appended byte. Above compactLimit
// more than half of the log is dead, so the emptiest segment is at least half dead:
// checking two bytes frees at least one, and the log stops growing.
const compactPace = 2

// compactEvery is the number of calls of the writer between two checks whether there is
// anything to compact.
const compactEvery = 16

// compact does the share of compaction for size bytes that are about to be appended.
func (s *Map) compact(size int) {
	v := &s.log.victim
	if v.seg == nil {
		if v.credit = 0; s.log.bytes <= s.compactLimit() || !s.chooseVictim() {
			return
		}
	}
	v.credit += compactPace*size + kvmsg.MinRecord
	for v.credit > 0 && v.seg != nil {
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
	l.trim(l.spare())
	v := &l.victim
	for v.credit = size; v.credit > 0; {
		if v.seg == nil && (l.bytes <= s.compactLimit() || !s.chooseVictim()) {
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
	return l.bytes <= s.compactLimit() && l.retiredSize+l.freeSize <= l.spare() && l.burst <= maxSegment
}

// compactLimit is the size of the log above which compaction works.
func (s *Map) compactLimit() int {
	return 2*s.log.live + slackSegments*s.log.segmentSize(0)
}

// chooseVictim selects the sealed segment with the smallest share of live bytes.
func (s *Map) chooseVictim() bool {
	v := &s.log.victim
	// A segment that is three quarters live is not worth copying.
	best := 0.75
	s.log.each(func(seg *Segment) {
		if share := float64(seg.bytes) / float64(len(seg.buf)); seg.sealed && share < best {
			best, v.seg = share, seg
		}
	})
	v.next = 0
	return v.seg != nil
}

// compactStep moves the live records of one block of the victim. When the last live
// record is moved the victim retires, and there is no victim.
func (s *Map) compactStep() {
	v := &s.log.victim
	from, n := v.seg, v.next
	v.next++
	v.credit -= blockSize
	v.found = v.found[:0]
	from.records(from.blocks, n, v.find)
	for i := range v.found {
		f := &v.found[i]
		f.hash = kvmsg.HashKey(f.record.Key())
		s.prefetchSlot(f.hash)
	}
	for i := range v.found {
		f := &v.found[i]
		s.move(from, f)
		v.credit -= len(f.record)
		v.moved += uint64(len(f.record))
	}
	clear(v.found)
}

// move copies a live record to the segment to which compaction appends.
func (s *Map) move(from *Segment, f *survivor) {
	r := f.record
	to := s.log.moved
	if to == nil || to.room() < len(r) {
		to = s.log.growMoved(len(r))
	}
	off := to.used
	copy(to.buf[off:], r)
	to.used += uint32(len(r))
	to.anchor(off)
	to.mark(off, len(r))
	s.log.live += len(r)

	s.slotOf(f.hash, locate(from, f.offset)).Store(slotValue(f.hash, locate(to, off)))
	s.log.bury(from, f.offset, len(r))
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
