package store

import (
	"sync/atomic"
	"unsafe"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// applyBatch is the number of records that Apply copies and links at a time: few enough
// that the copies are still in the first-level cache when they are linked.
const applyBatch = 64

// linkGroup is the number of records that take the last two steps of link together: enough
// that a load from memory is over when the first of them takes the last step, and few
// enough that the lines are still in the first-level cache.
const linkGroup = 16

// candidate is the first slot with the tag of a record's key, or the zero candidate.
type candidate struct {
	value uint64 // of the slot
	pos   uint32 // index of the slot in its table
}

// target is a candidate and what it leads to, as long as no table is rebuilt.
type target struct {
	candidate
	slot *atomic.Uint64
	old  *Segment // of the record to which the slot points
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
			s.link(seg, off-start, part, firstSeq)
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
		if seg.sealed && seg.live == 0 {
			s.log.retire(seg) // a deletion too large to share a segment
		}
	}
	s.publish()
	return out
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
// The usual record, which replaces one of the same key, is linked here without a call of
// linkOne.
func (s *Map) link(seg *Segment, shift uint32, spans []buf.Span, seq int64) {
	if seg.shared {
		seg.thaw()
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
			f.value = 0
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
					break
				}
			}
		}
		rebuilds := s.rebuilds
		for i := range group {
			span, f := &group[i], &found[i]
			off := span.Start + shift
			r := seg.record(off)
			seg.anchor(off)
			if seq > 0 {
				r.SetSeq(seq)
				seq++
			}
			if f.value != 0 && s.rebuilds == rebuilds && f.slot.Load() == f.value && span.Tag&kvmsg.TagDelete == 0 {
				at := slotLocation(f.value)
				if before, same := r.SameKey(f.old.record(at.offset())); same {
					seg.block(off).live |= 1 << (off >> granuleBits & 63)
					marked++
					bytes += int(span.End - span.Start)
					f.slot.Store(f.value&^(1<<locationBits-1) | uint64(locate(seg, off)))
					s.log.bury(f.old, at.offset(), before)
					continue
				}
			}
			s.linkOne(seg, span, shift, f.candidate)
		}
	}
	seg.live += int32(marked)
	seg.bytes += bytes
	s.log.live += bytes
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
