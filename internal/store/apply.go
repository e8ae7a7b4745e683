package store

import (
	"sync/atomic"
	"unsafe"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
)

// candidate is the first slot with the tag of a record's key, or the zero candidate.
type candidate struct {
	value uint64 // of the slot
	pos   uint32 // index of the slot in its table
}

// target is a candidate and what it leads to, as long as no table is rebuilt. Without a
// candidate, it is the empty slot at which the search ended.
type target struct {
	candidate
	slot *atomic.Uint64 // nil if there is no table
	old  *Segment       // of the record to which the slot points
}

// Apply copies the messages of spans to the log and updates the index. spans are ranges
// of wire that kvmsg.Inspect has checked, with the tags that it returned. Runs of
// adjacent spans are copied at once. The records get the sequences firstSeq, firstSeq+1
// and so on, or keep their own if firstSeq is 0. A message with an empty value deletes
// its key; it is in the log and in the pieces like any other.
//
// Apply appends the pieces of the log that hold the messages, in order, to out.
func (s *Map) Apply(wire []byte, spans []buf.Span, firstSeq int64, out []Piece) []Piece {
	return s.copyIn(wire, spans, firstSeq, out, true)
}

// Append is the first half of Apply: the messages are in the log and in the pieces, and not
// in the map, until Link. Until then a cut does not have them, and they do not count as
// live.
func (s *Map) Append(wire []byte, spans []buf.Span, firstSeq int64, out []Piece) []Piece {
	return s.copyIn(wire, spans, firstSeq, out, false)
}

// Link is the second half of Apply, for the pieces of one call of Append. Pieces must be
// linked in the order in which they were appended. spans has the records in them, with the
// tags that Append was given; of the positions only the distances between Start and End
// matter.
func (s *Map) Link(pieces []Piece, spans []buf.Span) {
	var part [applyBatch]buf.Span
	for _, p := range pieces {
		off := p.off
		for left := p.Records; left > 0; {
			n := min(left, applyBatch)
			for i, span := range spans[:n] {
				end := off + span.End - span.Start
				part[i] = buf.Span{Start: off, End: end, Tag: span.Tag}
				off = end
			}
			s.link(p.Segment, 0, part[:n], 0)
			spans, left = spans[n:], left-n
		}
		s.log.linked(p)
	}
	s.publish()
}

// Truncate drops the pieces of calls of Append that were not linked: the records never were
// in the map.
func (s *Map) Truncate(pieces []Piece) {
	for _, p := range pieces {
		s.log.linked(p)
	}
}

// copyIn is Apply, or Append if the records are not to be linked.
func (s *Map) copyIn(wire []byte, spans []buf.Span, firstSeq int64, out []Piece, link bool) []Piece {
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
			if link {
				s.link(seg, off-start, part, firstSeq)
			} else {
				seg.stamp(off-start, part, firstSeq)
			}
			if firstSeq > 0 {
				firstSeq += int64(len(part))
			}
		}
		spans = spans[n:]
		if last := len(out) - 1; last >= 0 && out[last].Segment == seg && out[last].end == off {
			out[last].end = seg.used
			out[last].Records += n
		} else {
			out = append(out, Piece{Segment: seg, off: off, end: seg.used, Records: n})
		}
		if !link {
			s.log.unlinked += int(seg.used - off)
		}
		s.log.retireDead(seg) // a deletion too large to share a segment
	}
	s.publish()
	return out
}

// Merge is Apply for records that keep their sequences and may come in any order: of the
// records of a key, deletions among them, the one with the highest sequence wins. But a
// deletion leaves nothing behind: a record that comes after it is set, whatever its
// sequence.
func (s *Map) Merge(wire []byte, spans []buf.Span) {
	var space [4]Piece
	s.merging = !mutate.MergeStale
	s.Apply(wire, spans, 0, space[:0])
	s.merging = false
}

// MergeAppended is Merge for the pieces of calls of Append: the second half of it. The
// number of records is known, so the index grows at once.
func (s *Map) MergeAppended(pieces []Piece) {
	if len(pieces) == 0 {
		return
	}
	records := 0
	for _, p := range pieces {
		records += p.Records
	}
	s.expect(records, &s.log)
	var part [applyBatch]buf.Span
	s.merging = !mutate.MergeStale
	for _, p := range pieces {
		for at, left := p.off, p.Records; left > 0; {
			n := min(left, applyBatch)
			for i := range part[:n] {
				part[i] = kvmsg.SpanAt(p.Segment.buf, at)
				at = part[i].End
			}
			s.link(p.Segment, 0, part[:n], 0)
			left -= n
		}
		s.log.linked(p)
	}
	s.merging = false
	s.publish()
}

// link points the index to records that have been copied to seg. It also sets their
// sequences, from seq on, unless seq is 0.
//
// It has three steps, because in a large map each of them misses the cache: find the
// slot; read the record that it points to, to compare the keys; change the slot and
// clear the live bit of that record. One record after the other takes a step, and each
// step prefetches what the next one loads, so no record waits for memory. The result of
// the second step is valid in the third if no table was rebuilt and the slot has not
// changed: a location belongs to one key while the record is live, and no segment is
// recycled during a call of the writer. Otherwise, as when the batch has the same key
// twice, the search is repeated.
//
// The usual record, which replaces one of the same key or has a new key, is linked here
// without a call of linkOne. A new key gets the empty slot at which its search ended. That
// would be wrong once linkOne has put the same key into an earlier slot, a dead one, or has
// removed a key, so that searches end earlier.
func (s *Map) link(seg *Segment, shift uint32, spans []buf.Span, seq int64) {
	if seg.shared {
		seg.unshare()
	}
	for i := range spans {
		s.prefetchSlot(spans[i].Tag)
	}
	var found [linkGroup]target
	segments := *s.log.table.Load()
	marked, bytes := 0, 0
	for len(spans) > 0 {
		group := spans[:min(len(spans), linkGroup)]
		spans = spans[len(group):]
		for i := range group {
			f, hash := &found[i], group[i].Tag
			f.value, f.slot = slotEmpty, nil
			t := s.tables[s.shard(hash)].Load()
			if t == nil {
				continue
			}
			tag, slots := tagOf(hash), t.slots
			for p := homeOf(hash); ; p++ {
				pos := p & uint64(len(slots)-1)
				v := slots[pos].Load()
				if v>>tagShift == tag {
					at := slotLocation(v)
					f.value, f.pos, f.slot = v, uint32(pos), &slots[pos]
					f.old = segments[int(at.id())&(len(segments)-1)].Load()
					prefetchOld(unsafe.Pointer(&f.old.buf[at.offset()]), unsafe.Pointer(f.old.block(at.offset())))
					break
				}
				if v == slotEmpty {
					f.slot = &slots[pos]
					break
				}
			}
		}
		rebuilds, direct := s.rebuilds, true // direct: no call of linkOne yet
		for i := range group {
			span, f := &group[i], &found[i]
			off := span.Start + shift
			r := seg.record(off)
			seg.anchor(off)
			if seq > 0 {
				r.SetSeq(seq)
				seq++
			}
			usual, before := false, 0
			switch {
			case span.Tag&kvmsg.TagDelete != 0:
			case f.slot == nil || s.rebuilds != rebuilds || f.slot.Load() != f.value:
			case f.value == slotEmpty:
				usual = direct && s.claim(s.shard(span.Tag))
			default:
				old := f.old.record(slotLocation(f.value).offset())
				before, usual = r.SameKey(old)
				if usual && s.merging && old.Seq() >= r.Seq() {
					continue
				}
			}
			if !usual {
				s.linkOne(seg, span, shift, f.candidate)
				direct = false
				continue
			}
			seg.block(off).live |= 1 << (off >> granuleBits & 63)
			marked++
			bytes += int(span.End - span.Start)
			f.slot.Store(slotValue(span.Tag, locate(seg, off)))
			if f.value != slotEmpty {
				s.log.markDead(f.old, slotLocation(f.value).offset(), before)
			}
		}
	}
	seg.live += int32(marked)
	seg.bytes += bytes
	s.log.live += bytes
}

// claim counts a new key, which the caller puts into the empty slot at which its search in
// table i ended. It returns false if the key needs insert: because there are dead slots,
// which are to be used again, or because the table must grow.
func (s *Map) claim(i int) bool {
	c := &s.counts[i]
	if c.dead > 0 || int(c.used+1) > len(s.tables[i].Load().slots)/2 {
		return false
	}
	c.used++
	s.count++
	return true
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
	n, r := s.shard(span.Tag), seg.record(off)
	if c.value != 0 {
		t := s.tables[n].Load()
		slot := &t.slots[int(c.pos)&(len(t.slots)-1)]
		if slot.Load() == c.value {
			at := slotLocation(c.value)
			old := s.log.segment(at)
			if before, same := r.SameKey(old.record(at.offset())); same {
				if s.merging && old.record(at.offset()).Seq() >= r.Seq() {
					return
				}
				if span.Tag&kvmsg.TagDelete == 0 {
					seg.mark(off, size)
					s.log.live += size
					slot.Store(c.value&^(1<<locationBits-1) | uint64(locate(seg, off)))
				} else {
					s.remove(n, uint64(c.pos), &s.log)
					s.count--
				}
				s.log.markDead(old, at.offset(), before)
				return
			}
		}
	}
	hash := span.Tag &^ kvmsg.TagFlags
	if s.merging {
		if _, _, old := s.search(hash, r.Key()); old != nil && old.Seq() >= r.Seq() {
			return
		}
	}
	if span.Tag&kvmsg.TagDelete != 0 {
		s.unset(hash, r.Key())
	} else {
		s.set(hash, seg, off, size)
	}
}

// candidate returns the candidate of a key with the given hash.
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
