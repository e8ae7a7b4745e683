package store

import (
	"unsafe"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// applyBatch is the number of records that Apply copies and links at a time: few enough
// that the copies are still in the first-level cache when they are linked.
const applyBatch = 64

// linkAhead is the distance in records between the steps of link, a power of two: long
// enough for a load from memory, and short enough that the loaded line is still cached.
const linkAhead = 8

// candidate is the result of the second step of link for a record.
type candidate struct {
	value uint64 // the slot that may hold the key, or 0
	pos   uint32 // index of the slot in its table
}

// Apply copies the messages of spans to the log and updates the index. spans are ranges
// of wire that kvmsg.Inspect has checked, with the tags that it returned. Runs of
// adjacent spans are copied at once. The records get the sequences firstSeq, firstSeq+1
// and so on, or keep their own if firstSeq is 0. A message with an empty value deletes
// its key; it is in the log and in the pieces like any other.
//
// Apply appends the pieces of the log that hold the messages, in order, to out.
func (s *Map) Apply(wire []byte, spans []buf.Span, firstSeq int64, out []Piece) []Piece {
	if len(spans) == 0 {
		return out
	}
	s.begin(int(spans[len(spans)-1].End - spans[0].Start))
	head := s.log.head
	for len(spans) > 0 {
		start := spans[0].Start
		end, n := start, 0
		if head != nil {
			limit := uint32(min(uint64(start)+uint64(head.room()), 1<<32-1))
			for n < len(spans) && spans[n].Start == end && spans[n].End <= limit {
				end = spans[n].End
				n++
			}
		}
		seg := head
		if n == 0 {
			size := int(spans[0].End - start)
			if size <= ownSegment {
				head = s.log.grow(size)
				continue
			}
			seg, n = s.log.own(size), 1
		}
		// Copy and link portions that fit in the first-level cache.
		off := seg.used
		for first := 0; first < n; first += applyBatch {
			part := spans[first:min(first+applyBatch, n)]
			from, to := part[0].Start, part[len(part)-1].End
			copy(seg.buf[seg.used:], wire[from:to])
			seg.used += to - from
			seg.stamp(off-start, part, firstSeq)
			if firstSeq > 0 {
				firstSeq += int64(len(part))
			}
			s.link(seg, off-start, part)
		}
		spans = spans[n:]
		if last := len(out) - 1; last >= 0 && out[last].Segment == seg && out[last].end == off {
			out[last].end = seg.used
			out[last].Records += n
		} else {
			out = append(out, Piece{Segment: seg, off: off, end: seg.used, Records: n})
		}
		if seg.sealed && seg.live == 0 {
			s.log.retire(seg) // a deletion too large to share a segment
		}
	}
	s.publish()
	return out
}

// link points the index to records that have been copied to seg.
//
// It has three steps, because in a large map each of them misses the cache: find the
// slot; read the record that it points to, to compare the keys; change the slot and
// clear the live bit of that record. A record takes a step when linkAhead others have taken the previous one, and each step
// prefetches what the next one loads, so no record waits for memory. The result of the
// second step is valid in the third if the slot has not changed: a location belongs to
// one key while the record is live, and no segment is recycled during a call of the
// writer. If the slot has changed, because the batch has the same key twice or the
// table was rebuilt, the search is repeated.
func (s *Map) link(seg *Segment, shift uint32, spans []buf.Span) {
	for i := range min(linkAhead, len(spans)) {
		s.prefetchSlot(spans[i].Tag)
	}
	for i := range len(spans) + linkAhead {
		if next := i + linkAhead; next < len(spans) {
			s.prefetchSlot(spans[next].Tag)
		}
		found := &s.found[i%len(s.found)]
		if last := i - linkAhead; last >= 0 {
			s.linkOne(seg, &spans[last], shift, *found)
		}
		if i < len(spans) {
			*found = s.candidate(spans[i].Tag)
			s.prefetchOld(*found)
		}
	}
}

// prefetchSlot prefetches the slot at which the search for a hash begins.
func (s *Map) prefetchSlot(hash uint64) {
	if t := s.tables[s.shard(hash)].Load(); t != nil {
		prefetch(unsafe.Pointer(&t.slots[homeOf(hash)&uint64(len(t.slots)-1)]))
	}
}

// linkOne points the index to the record in seg that was copied from span, or removes
// its key. c is the slot of the key, unless that has changed since.
func (s *Map) linkOne(seg *Segment, span *buf.Span, shift uint32, c candidate) {
	off, size := span.Start+shift, int(span.End-span.Start)
	n := s.shard(span.Tag)
	if c.value != 0 {
		t := s.tables[n].Load()
		slot := &t.slots[int(c.pos)&(len(t.slots)-1)]
		if slot.Load() == c.value {
			at := slotLocation(c.value)
			old := s.log.segment(at)
			if before, same := seg.record(off).SameKey(old.record(at.offset())); same {
				if span.Tag&kvmsg.TagDelete == 0 {
					seg.mark(off, size)
					s.log.live += size
					slot.Store(c.value&^(1<<locationBits-1) | uint64(locate(seg, off)))
				} else {
					s.remove(n, uint64(c.pos), &s.log)
					s.count--
				}
				s.log.bury(old, at.offset(), before)
				return
			}
		}
	}
	if span.Tag&kvmsg.TagDelete != 0 {
		s.unset(span.Tag&^kvmsg.TagFlags, seg.record(off).Key())
	} else {
		s.set(span.Tag&^kvmsg.TagFlags, seg, off, size)
	}
}

// candidate returns the first slot with the tag of hash, or the zero candidate. The
// hash may have flags in its low bits.
func (s *Map) candidate(hash uint64) candidate {
	t := s.tables[s.shard(hash)].Load()
	if t == nil {
		return candidate{}
	}
	tag, mask := tagOf(hash), uint64(len(t.slots)-1)
	for p := homeOf(hash); ; p++ {
		v := t.slots[p&mask].Load()
		if v>>tagShift == tag {
			return candidate{v, uint32(p & mask)}
		}
		if v == slotEmpty {
			return candidate{}
		}
	}
}
