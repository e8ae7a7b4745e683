package chp

import "sync/atomic"

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

	// What link found out about the records between its second and third step. In
	// here so that nobody has to clear it.
	found [linkAhead]candidate
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
	s := new(store)
	s.setUp(o)
	return s
}

// setUp makes the zero store an empty one, for those who have it as a part of
// something.
func (s *store) setUp(o storeOptions) {
	if o.shards == 0 {
		o.shards = maxShards
	}
	s.index = newIndex(o.shards)
	s.log.minSegment = o.minSegment
	s.log.collected = o.collected
	if s.log.minSegment == 0 {
		s.log.minSegment = defaultSegment
	}
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

// size returns the bytes of the piece.
func (p piece) size() int { return int(p.end - p.off) }

// join adds the piece that follows p in the log to p. It reports false, and does
// nothing, if next is not that piece.
func (p *piece) join(next piece) bool {
	if p.seg != next.seg || p.end != next.off {
		return false
	}
	p.end = next.end
	p.n += next.n
	return true
}

func locate(seg *segment, off uint32) location {
	return location(seg.id)<<segmentBits | location(off)
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

// storeStats are figures of one moment.
type storeStats struct {
	keys       int
	liveOctets int    // octets of the newest records
	logOctets  int    // octets of the segments in use
	idleOctets int    // octets of the segments that wait to be used again
	moved      uint64 // octets that compaction has copied
}

// liveBytes returns the bytes of the newest records.
func (s *store) liveBytes() int { return s.log.live }

// logBytes returns the bytes of the segments in use.
func (s *store) logBytes() int { return s.log.octets }

// sizeOf returns the bytes of the newest record of key, or 0 if there is none.
func (s *store) sizeOf(hash uint64, key []byte) int {
	_, _, r := s.search(hash, key)
	if r == nil {
		return 0
	}
	return r.size()
}

// borrowers returns how many borrowers the segments with live records have
// together.
func (s *store) borrowers() (n int) {
	s.log.each(func(seg *segment) { n += int(seg.refs.Load()) })
	return n
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
