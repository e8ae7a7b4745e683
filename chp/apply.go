package chp

import "clustermap/sockets"

// applyBatch is how many records apply works on at a time. Enough that the
// cache misses of one step overlap, few enough that what the first step brought
// into the cache is there for the last.
const applyBatch = 64

// touchAhead is how far into a record link touches it: far enough to reach the
// header of the value where key and properties are short.
const touchAhead = 48

// candidate is what the first steps of apply found out about a record.
type candidate struct {
	value uint64 // the slot that holds the key, or 0
	pos   uint32 // its place in the table
	size  uint32 // octets of the record that the slot points to
}

// apply takes over the messages in spans, which are octets of wire and have been
// inspected: span Tags are those of inspect. They are copied to the log, runs of
// adjacent spans at once, and given the sequences firstSeq, firstSeq+1 and so on,
// or left with their own if firstSeq is 0. A message with an empty value deletes
// its key; it is in the log and in the pieces like any other.
//
// The pieces appended to out hold the messages in order.
func (s *store) apply(wire []byte, spans []sockets.Span, firstSeq int64, out []piece) []piece {
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
		if last := len(out) - 1; last >= 0 && out[last].seg == seg && out[last].end == off {
			out[last].end = seg.used
			out[last].n += n
		} else {
			out = append(out, piece{seg: seg, off: off, end: seg.used, n: n})
		}
		if seg.sealed && seg.live == 0 {
			s.log.retire(seg) // a deletion too big to share a segment
		}
	}
	s.publish()
	return out
}

// link enters records that have been copied to seg into the index.
//
// It takes three steps, for in a big map each of them misses the cache: find the
// slot; look at the record that it points to, to see that the key is the same;
// change the slot. Within a step no record waits for another, so the misses
// overlap. What the first steps found is good in the third if the slot still has
// the value it had: a location stands for one key as long as it is live, and no
// segment is recycled during a call of the writer. If it has not, because the
// same key occurs twice here or its table was rebuilt, the search is done again.
func (s *store) link(seg *segment, shift uint32, spans []sockets.Span) {
	for i := range spans {
		c := &s.found[i]
		c.value, c.pos = s.candidate(spans[i].Tag)
	}
	// A comparison is too long for many of them to be under way at once, so the
	// records are touched first, in a loop that is nothing but loads.
	var touched byte
	for i := range spans {
		if v := s.found[i].value; v != 0 {
			at := slotLocation(v)
			r := s.log.segment(at).record(at.offset())
			touched += r[0] + r[min(len(r)-1, touchAhead)]
		}
	}
	s.touched += touched
	for i := range spans {
		c := &s.found[i]
		if c.value == 0 {
			continue
		}
		at := slotLocation(c.value)
		old := s.log.segment(at).record(at.offset())
		if size, ok := seg.record(spans[i].Start + shift).sameKey(old); ok {
			c.size = uint32(size)
		} else {
			c.value = 0
		}
	}
	for i := range spans {
		c, span := &s.found[i], &spans[i]
		off, size := span.Start+shift, int(span.End-span.Start)
		if c.value != 0 {
			n := s.shard(span.Tag)
			t := s.tables[n].Load()
			slot := &t.slots[int(c.pos)&(len(t.slots)-1)]
			if slot.Load() == c.value {
				if span.Tag&tagDelete == 0 {
					seg.mark(off, size)
					s.log.live += size
					slot.Store(c.value&^(1<<locationBits-1) | uint64(locate(seg, off)))
				} else {
					s.remove(n, uint64(c.pos), &s.log)
					s.count--
				}
				at := slotLocation(c.value)
				s.log.bury(s.log.segment(at), at.offset(), int(c.size))
				continue
			}
		}
		if span.Tag&tagDelete != 0 {
			s.unset(span.Tag&^tagFlags, seg.record(off).key())
		} else {
			s.set(span.Tag&^tagFlags, seg, off, size)
		}
	}
}

// candidate returns the first slot with the tag of hash, or 0. The hash may have
// flags in its low bits.
func (s *store) candidate(hash uint64) (value uint64, pos uint32) {
	t := s.tables[s.shard(hash)].Load()
	if t == nil {
		return 0, 0
	}
	tag, mask := tagOf(hash), uint64(len(t.slots)-1)
	for p := homeOf(hash); ; p++ {
		v := t.slots[p&mask].Load()
		if v>>tagShift == tag {
			return v, uint32(p & mask)
		}
		if v == slotEmpty {
			return 0, 0
		}
	}
}
