package store

import (
	"clustermap/internal/invariants"
	"clustermap/internal/kvmsg"
)

// Compaction copies the live records of a segment that has few of them to
// another one, so that the segment can be recycled. It keeps the log within
// twice what is live and a few segments, and does so in small steps: each call of
// the writer pays for about as much as it appends.
//
// The records are moved as they are, so a moved record is one more copy of
// bytes that are in the log already; sequences do not change and nothing is
// published. Readers find the old copy or the new one. Which records are live the
// live bits tell; dead ones cost a look at their length bytes if there is a live
// one near by, and nothing if not.
type compaction struct {
	seg    *Segment // being compacted, or nil
	next   int      // the first block not yet looked at
	credit int      // bytes that may be looked at; negative after big records
	moved  uint64   // bytes copied so far
}

// compactPace is how many bytes are looked at for one appended. Beyond the
// limit, which makes half of the log dead, the emptiest segment is at least half
// dead too: looking at two bytes gives back one or more, so the log stops
// growing.
const compactPace = 2

// compactEvery is how many calls of the writer go by before one looks whether
// there is anything to compact.
const compactEvery = 16

// compact does a share of the work, for size bytes that are going to be appended.
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

// Tidy is compact for when nothing is appended: it looks at about size bytes, takes
// back the segments that are out of use, and reports whether there is more to do.
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

// compactLimit is the size of the log from which compaction works.
func (s *Map) compactLimit() int {
	return 2*s.log.live + slackSegments*s.log.segmentSize(0)
}

// chooseVictim picks the sealed segment with the smallest share of live bytes.
func (s *Map) chooseVictim() bool {
	v := &s.log.victim
	// Nothing that is three quarters full is worth the copying.
	best := 0.75
	s.log.each(func(seg *Segment) {
		if share := float64(seg.bytes) / float64(len(seg.buf)); seg.sealed && share < best {
			best, v.seg = share, seg
		}
	})
	v.next = 0
	return v.seg != nil
}

// compactStep looks at one block of the victim, and moves what is live in it. With
// the last live record the victim retires, which also ends its being the victim.
func (s *Map) compactStep() {
	v := &s.log.victim
	from, n := v.seg, v.next
	v.next++
	v.credit -= blockSize
	from.records(from.blocks, n, func(r kvmsg.Record, at uint32) bool {
		s.move(from, at, r)
		v.credit -= len(r)
		v.moved += uint64(len(r))
		return true
	})
}

// move copies a live record to where compaction appends.
func (s *Map) move(from *Segment, at uint32, r kvmsg.Record) {
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

	hash := kvmsg.HashKey(r.Key())
	v, pos, _ := s.search(hash, r.Key())
	invariants.Assert(slotLocation(v) == locate(from, at), "the index points to a live record")
	s.tables[s.shard(hash)].Load().slots[pos].Store(slotValue(hash, locate(to, off)))
	s.log.bury(from, at, len(r))
}
