package chp

import (
	"sync/atomic"

	"clustermap/sockets"
)

// store is a log and an index into it: the hashmap of a server, of a client, or
// of one stripe of a Map.
//
// It has one writer at a time, which the owner of the store sees to (a mutex
// taken once a batch), and any number of readers that take no lock. The methods
// that readers may call say so; all others are the writer's.
//
// What holds whenever no method of the writer is running:
//
//  1. The index has one slot for a key, and it points to the newest record of
//     the key. A key whose newest record has an empty value has no slot.
//  2. A live bit of a segment is set if and only if an index slot points to the
//     record that begins there: live bits and index are inverses. Compaction and
//     cuts read the log through the live bits, in the order of the octets, and
//     never go through the index.
//  3. segment.live and segment.octets count those bits and their records; log.live
//     is the sum of the octets, store.keys that of the bits.
//  4. A sealed segment without live records is retired, and a retired segment is
//     not appended to, pinned by a cut, or handed out as a piece.
//  5. The octets of a record never change once its slot or its piece is known to
//     anybody else. The sequence is stamped before that.
//
// And at every moment, for readers: a slot holds a location whose segment can be
// found; a reader whose copy of the slot is stale finds no segment and looks
// again, or finds the old one, which is not recycled while it is inside its epoch.
type store struct {
	index
	log log

	count int          // keys
	keys  atomic.Int64 // the same for readers; the writer stores it once a call

	// Scratch of apply. In here so that nobody has to clear it.
	found [applyBatch]candidate
}

// storeOptions has the knobs of a store. The zero value works.
type storeOptions struct {
	minSegment int // octets of the first segment, a power of two; 0 is 16 KiB
	shards     int // tables of the index, a power of two; 0 is 256, which is the most

	// collected leaves retired segments to the garbage collector. Readers then
	// need no epoch, which is half of what a get costs, and the writer allocates
	// now and then. Right for a Map, which is read far more often than written;
	// wrong for a server, which overwrites a few megabytes hundreds of times a
	// second and would run the collector as often.
	collected bool
}

func newStore(o storeOptions) *store {
	if o.shards == 0 {
		o.shards = maxShards
	}
	s := &store{index: newIndex(o.shards)}
	s.log.minSegment = o.minSegment
	s.log.collected = o.collected
	if s.log.minSegment == 0 {
		s.log.minSegment = defaultSegment
	}
	return s
}

// piece is a run of n whole records in the log, the octets off to end of a
// segment. It borrows them: until the next call of a method of the store's writer
// they stay as they are, and longer for those who retain the segment first.
type piece struct {
	seg      *segment
	off, end uint32
	n        int
}

// wire returns the octets of the piece.
func (p piece) wire() []byte { return p.seg.buf[p.off:p.end:p.end] }

// applyBatch is how many records apply works on at a time. Enough that the
// cache misses of one step overlap, few enough that what the first step brought
// into the cache is there for the last.
const applyBatch = 64

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
			seg, end, n = s.log.own(size), spans[0].End, 1
		}
		off := seg.used
		copy(seg.buf[off:], wire[start:end])
		seg.used += end - start
		seg.stamp(off-start, spans[:n], firstSeq)
		if firstSeq > 0 {
			firstSeq += int64(n)
		}
		for first := 0; first < n; first += applyBatch {
			s.link(seg, off-start, spans[first:min(first+applyBatch, n)])
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

func locate(seg *segment, off uint32) location {
	return location(seg.id)<<segmentBits | location(off)
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

// find returns the record of key, or nil. It goes on to the end of its segment.
// Readers may call it: inside an epoch, unless the store is a collected one.
func (s *store) find(hash uint64, key []byte) record {
again:
	t := s.tables[s.shard(hash)].Load()
	if t == nil {
		return nil
	}
	slots, tag := t.slots, tagOf(hash)
	for p := homeOf(hash); ; p++ {
		v := slots[p&uint64(len(slots)-1)].Load()
		if v>>tagShift == tag {
			at := slotLocation(v)
			seg := s.log.segment(at)
			if seg == nil {
				goto again
			}
			if r := seg.record(at.offset()); r.hasKey(key) {
				return r
			}
		}
		if v == slotEmpty {
			return nil
		}
	}
}

// search is find for the writer: it also returns the slot, the value of which is
// 0 if the key is not there.
func (s *store) search(hash uint64, key []byte) (value, pos uint64, r record) {
	t := s.tables[s.shard(hash)].Load()
	if t == nil {
		return 0, 0, nil
	}
	tag, mask := tagOf(hash), uint64(len(t.slots)-1)
	for p := homeOf(hash); ; p++ {
		v := t.slots[p&mask].Load()
		if v>>tagShift == tag {
			at := slotLocation(v)
			if r := s.log.segment(at).record(at.offset()); r.hasKey(key) {
				return v, p & mask, r
			}
		}
		if v == slotEmpty {
			return 0, 0, nil
		}
	}
}

// set points the index to the record of size octets at off in seg.
func (s *store) set(hash uint64, seg *segment, off uint32, size int) {
	seg.mark(off, size)
	s.log.live += size
	v, pos, old := s.search(hash, seg.record(off).key())
	if v == 0 {
		s.insert(hash, locate(seg, off), &s.log)
		s.count++
		return
	}
	s.tables[s.shard(hash)].Load().slots[pos].Store(slotValue(hash, locate(seg, off)))
	at := slotLocation(v)
	s.log.bury(s.log.segment(at), at.offset(), old.size())
}

// unset takes key out of the index, and reports whether it was there.
func (s *store) unset(hash uint64, key []byte) bool {
	v, pos, old := s.search(hash, key)
	if v == 0 {
		return false
	}
	size := old.size()
	s.remove(s.shard(hash), pos, &s.log)
	s.count--
	at := slotLocation(v)
	s.log.bury(s.log.segment(at), at.offset(), size)
	return true
}

// begin opens a call of the writer that appends size octets.
func (s *store) begin(size int) {
	s.log.begin(size)
	if s.log.victim.seg != nil || s.log.round%compactEvery == 0 || size >= defaultSegment {
		s.compact(size)
	}
}

// publish makes the number of keys known to readers.
func (s *store) publish() {
	if s.keys.Load() != int64(s.count) {
		s.keys.Store(int64(s.count))
	}
}

// put appends one record, made of its parts, which the caller has checked. An
// empty value deletes the key, as in the protocol.
func (s *store) put(key []byte, seq int64, uuid, props, value []byte) piece {
	size := recordSize(len(key), len(uuid), len(props), len(value))
	p := s.reserve(size)
	appendRecord(p.seg.buf[:p.off], key, seq, uuid, props, value)
	hash := hashKey(key)
	if len(value) == 0 {
		s.unset(hash, key)
		if p.seg.sealed && p.seg.live == 0 {
			s.log.retire(p.seg)
		}
	} else {
		s.set(hash, p.seg, p.off, size)
	}
	s.publish()
	return p
}

// putHash stores value under key, whose hash is given. An empty value is a value
// like any other: the store of a Map has no deletions in its log.
func (s *store) putHash(hash uint64, key, value []byte) {
	size := recordSize(len(key), 0, 0, len(value))
	p := s.reserve(size)
	appendRecord(p.seg.buf[:p.off], key, 0, nil, nil, value)
	s.set(hash, p.seg, p.off, size)
	s.publish()
}

// delete removes key, whose hash is given, without a record of it in the log.
func (s *store) delete(hash uint64, key []byte) bool {
	s.begin(0)
	found := s.unset(hash, key)
	s.publish()
	return found
}

// reserve makes room for one record of size octets.
func (s *store) reserve(size int) piece {
	s.begin(size)
	seg := s.log.head
	if seg == nil || seg.room() < size {
		if size <= ownSegment {
			seg = s.log.grow(size)
		} else {
			seg = s.log.own(size)
		}
	}
	off := seg.used
	seg.used += uint32(size)
	seg.anchor(off)
	return piece{seg: seg, off: off, end: seg.used, n: 1}
}

// get appends the value of key to dst. Readers may call it.
func (s *store) get(key []byte, dst []byte) (value []byte, seq int64, ok bool) {
	hash := hashKey(key)
	c := readers.enter()
	if r := s.find(hash, key); r != nil {
		dst, seq, ok = append(dst, r.valueBehind(len(key))...), r.seq(), true
	}
	leave(c)
	return dst, seq, ok
}

// getCollected is get for a store whose segments are left to the garbage
// collector: there is nothing that an epoch would have to keep away.
func (s *store) getCollected(hash uint64, key []byte, dst []byte) (value []byte, ok bool) {
	r := s.find(hash, key)
	if r == nil {
		return dst, false
	}
	return append(dst, r.valueBehind(len(key))...), true
}

// view calls f with the record of key, and reports whether there is one. f must
// be quick, must not block, and must not keep the record. Readers may call it.
func (s *store) view(key []byte, f func(record)) bool {
	c := readers.enter()
	defer leave(c)
	r := s.find(hashKey(key), key)
	if r == nil {
		return false
	}
	f(r[:r.size():r.size()])
	return true
}

// findSeq looks for the live record whose key has the given hash and whose
// sequence is seq, and returns a copy of it in the octets of dst[:0], or in new
// ones if those are too few. It returns nil if there is none: the record has been
// superseded. Readers may call it.
func (s *store) findSeq(hash uint64, seq int64, dst []byte) record {
	c := readers.enter()
	defer leave(c)
again:
	t := s.tables[s.shard(hash)].Load()
	if t == nil {
		return nil
	}
	tag, mask := tagOf(hash), uint64(len(t.slots)-1)
	for p := homeOf(hash); ; p++ {
		v := t.slots[p&mask].Load()
		if v>>tagShift == tag {
			at := slotLocation(v)
			seg := s.log.segment(at)
			if seg == nil {
				goto again
			}
			if r := seg.record(at.offset()); r.seq() == seq && hashKey(r.key()) == hash {
				return append(dst[:0], r[:r.size()]...)
			}
		}
		if v == slotEmpty {
			return nil
		}
	}
}

// len returns the number of keys. Readers may call it.
func (s *store) len() int { return int(s.keys.Load()) }

// storeStats are figures of one moment.
type storeStats struct {
	keys       int
	liveOctets int    // octets of the newest records
	logOctets  int    // octets of the segments in use
	idleOctets int    // octets of the segments that wait to be used again
	moved      uint64 // octets that compaction has copied
}

func (s *store) stats() storeStats {
	return storeStats{
		keys:       s.count,
		liveOctets: s.log.live,
		logOctets:  s.log.octets,
		idleOctets: s.log.retiredSize + s.log.freeSize,
		moved:      s.log.victim.moved,
	}
}
