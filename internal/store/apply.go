package store

import (
	"unsafe"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// applyBatch is how many records apply copies and links at a time: few enough
// that the copies are still in the first-level cache when they are linked.
const applyBatch = 64

// linkAhead is how many records lie between the steps of link, a power of two:
// time enough for a load from memory, and few enough that what was fetched is
// still there.
const linkAhead = 8

// candidate is what the second step of link found out about a record.
type candidate struct {
	value uint64 // the slot that may hold the key, or 0
	pos   uint32 // its place in the table
}

// Apply takes over the messages in spans, which are bytes of wire and have been
// inspected: span Tags are those of kvmsg.Inspect. They are copied to the log, runs of
// adjacent spans at once, and given the sequences firstSeq, firstSeq+1 and so on,
// or left with their own if firstSeq is 0. A message with an empty value deletes
// its key; it is in the log and in the pieces like any other.
//
// The pieces appended to out hold the messages in order.
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
		// Copied and linked in portions that stay in the first-level cache.
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
			s.log.retire(seg) // a deletion too big to share a segment
		}
	}
	s.publish()
	return out
}

// link points the index to records that have been copied to seg.
//
// It takes three steps, for in a big map each of them misses the cache: find the
// slot; look at the record that it points to, to see that the key is the same;
// change the slot. A record takes its next step when linkAhead others have taken
// the one before, and each step asks for what the next one will load, so no record
// waits for memory. What the second step found is good in the third if the slot
// still has the value it had: a location stands for one key as long as it is live,
// and no segment is recycled during a call of the writer. If it has not, because
// the same key occurs twice here or its table was rebuilt, the search is done
// again.
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
			if at := slotLocation(found.value); found.value != 0 {
				prefetchRecord(unsafe.Pointer(&s.log.segment(at).buf[at.offset()]))
			}
		}
	}
}

// prefetchSlot asks for the slot where the search for a hash begins.
func (s *Map) prefetchSlot(hash uint64) {
	if t := s.tables[s.shard(hash)].Load(); t != nil {
		prefetch(unsafe.Pointer(&t.slots[homeOf(hash)&uint64(len(t.slots)-1)]))
	}
}

// linkOne points the index to the record in seg that span has become, or removes its
// key. c is the slot of the key, unless that has changed meanwhile.
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

// candidate returns the first slot with the tag of hash, or 0. The hash may have
// flags in its low bits.
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
