package store

import (
	"sync/atomic"

	"clustermap/internal/kvmsg"
)

// Map is a log and an index into it: the hashmap of a server, of a client, or of one
// stripe of a chp.Map. "The store" is one of these.
//
// It has one writer at a time, which the owner of the store guarantees (with a mutex
// that is locked once per batch), and any number of readers, which take no lock.
// Methods that readers may call say so; all others are the writer's.
//
// Invariants while no method of the writer is running, and no record is pending (see
// pending.go):
//
//  1. The index has one slot for each key, which points to the newest record of the key.
//     A key whose newest record has an empty value has no slot.
//  2. A live bit of a segment is set if and only if an index slot points to the record
//     that begins there. Compaction and cuts read the log by its live bits, in the order
//     of the bytes, and never through the index.
//  3. live and bytes of a segment count those bits and the bytes of their records;
//     log.live is the sum of bytes, keys that of live.
//  4. A sealed segment without live records, and without any that may still be linked, is retired. A retired segment is not
//     appended to, pinned by a new cut, or returned as a piece.
//  5. The bytes of a record never change once its slot or piece is known to others. The
//     sequence is set before that.
//
// For readers, at every moment: a slot has a location whose segment can be found. A
// reader with a stale copy of the slot finds no segment and looks again, or finds the
// old one, which is not recycled before the reader exits.
type Map struct {
	index
	log log

	count int          // keys
	keys  atomic.Int64 // count for readers; stored once per call of the writer

	merging bool // Apply is called by Merge

	pending     pending
	pendingFrom int  // the constant, or less in a test
	defers      bool // PutHash leaves records pending; once set, it stays so
}

// Options configures a store. The zero value is usable.
type Options struct {
	MinSegment int // bytes of the first segment, a power of two; 0 means 16 KiB
	Shards     int // tables of the index, a power of two up to 256; 0 means 256

	// GarbageCollected leaves retired segments to the garbage collector. Readers then need
	// no grace period, which is half the cost of a get, and the writer allocates now and
	// then. It suits a chp.Map, which is read far more often than written. It does not
	// suit a server, which overwrites a few megabytes hundreds of times per second and
	// would run the collector as often.
	//
	// Such a store is written to with PutHash and Delete, and read with
	// GetGarbageCollected and cuts.
	GarbageCollected bool
}

// New returns an empty store.
func New(o Options) *Map {
	s := new(Map)
	s.SetUp(o)
	return s
}

// SetUp initializes a zero Map that is embedded in another struct.
func (s *Map) SetUp(o Options) {
	if o.Shards == 0 {
		o.Shards = MaxShards
	}
	s.index = newIndex(o.Shards)
	s.log.minSegment = o.MinSegment
	s.log.garbageCollected = o.GarbageCollected
	s.pendingFrom = pendingFrom
	if s.log.minSegment == 0 {
		s.log.minSegment = defaultSegment
	}
}

// Piece is a run of whole records in the log: the bytes off to end of a segment. They
// do not change until the next call of the store's writer, or while the segment is
// retained.
type Piece struct {
	Segment  *Segment
	off, end uint32
	Records  int
}

// Wire returns the bytes of the piece.
func (p Piece) Wire() []byte { return p.Segment.buf[p.off:p.end:p.end] }

// Size returns the size of the piece in bytes.
func (p Piece) Size() int { return int(p.end - p.off) }

// Join appends the piece that follows p in the log to p. It returns false and does
// nothing if next is not that piece.
func (p *Piece) Join(next Piece) bool {
	if p.Segment != next.Segment || p.end != next.off {
		return false
	}
	p.end = next.end
	p.Records += next.Records
	return true
}

func locate(seg *Segment, off uint32) location {
	return location(seg.id)<<segmentBits | location(off)
}

// search is find for the writer. It also returns the slot; its value is 0 if the key
// does not exist.
func (s *Map) search(hash uint64, key []byte) (value, pos uint64, r kvmsg.Record) {
	t := s.tables[s.shard(hash)].Load()
	if t == nil {
		return 0, 0, nil
	}
	tag, mask := tagOf(hash), uint64(len(t.slots)-1)
	for p := homeOf(hash); ; p++ {
		v := t.slots[p&mask].Load()
		if v>>tagShift == tag {
			at := slotLocation(v)
			if r := s.log.segment(at).record(at.offset()); r.HasKey(key) {
				return v, p & mask, r
			}
		}
		if v == slotEmpty {
			return 0, 0, nil
		}
	}
}

// set points the index to the record of size bytes at off in seg.
func (s *Map) set(hash uint64, seg *Segment, off uint32, size int) {
	seg.mark(off, size)
	s.log.live += size
	v, pos, old := s.search(hash, seg.record(off).Key())
	if v == 0 {
		s.insert(hash, locate(seg, off), &s.log)
		s.count++
		return
	}
	s.tables[s.shard(hash)].Load().slots[pos].Store(slotValue(hash, locate(seg, off)))
	at := slotLocation(v)
	s.log.markDead(s.log.segment(at), at.offset(), old.Size())
}

// unset removes key from the index, and reports whether it was there.
func (s *Map) unset(hash uint64, key []byte) bool {
	v, pos, old := s.search(hash, key)
	if v == 0 {
		return false
	}
	size := old.Size()
	s.remove(s.shard(hash), pos, &s.log)
	s.count--
	at := slotLocation(v)
	s.log.markDead(s.log.segment(at), at.offset(), size)
	return true
}

// begin starts a call of the writer that appends size bytes.
func (s *Map) begin(size int) {
	s.log.begin(size)
	if s.log.victim.seg != nil || s.log.round%compactEvery == 0 || size >= defaultSegment {
		s.compact(size)
	}
}

// publish stores the number of keys for readers.
func (s *Map) publish() {
	if s.keys.Load() != int64(s.count) {
		s.keys.Store(int64(s.count))
	}
}

// Put appends one record with the given parts, which the caller has checked. An empty
// value deletes the key, as in the protocol.
func (s *Map) Put(key []byte, seq int64, uuid, props, value []byte) Piece {
	size := kvmsg.RecordSize(len(key), len(uuid), len(props), len(value))
	p := s.reserve(size)
	kvmsg.AppendRecord(p.Segment.buf[:p.off], key, seq, uuid, props, value)
	hash := kvmsg.HashKey(key)
	if len(value) == 0 {
		s.unset(hash, key)
		s.log.retireDead(p.Segment)
	} else {
		s.set(hash, p.Segment, p.off, size)
	}
	s.publish()
	return p
}

// PutHash stores value under key, whose hash is given. An empty value is stored like
// any other: the log of a chp.Map has no deletions. If the store is GarbageCollected and
// large, the record may be pending at first.
func (s *Map) PutHash(hash uint64, key, value []byte) {
	size := kvmsg.RecordSize(len(key), 0, 0, len(value))
	if s.defers {
		s.putPending(hash, key, value, size)
	} else {
		p := s.reserve(size)
		kvmsg.AppendRecord(p.Segment.buf[:p.off], key, 0, nil, nil, value)
		s.set(hash, p.Segment, p.off, size)
	}
	s.publish()
}

// Delete removes key, whose hash is given, without appending a record.
func (s *Map) Delete(hash uint64, key []byte) bool {
	if s.pending.mayHave(hash) {
		s.Flush()
	}
	s.begin(0)
	found := s.unset(hash, key)
	s.publish()
	return found
}

// reserve allocates one record of size bytes in the log.
func (s *Map) reserve(size int) Piece {
	s.begin(size)
	seg := s.log.head
	if seg == nil || seg.room() < size {
		s.Flush()
		if s.log.garbageCollected && s.log.live >= s.pendingFrom {
			s.defers = true
		}
		if size <= ownSegment {
			seg = s.log.grow(size)
		} else {
			seg = s.log.own(size)
		}
	}
	off := seg.used
	seg.used += uint32(size)
	seg.anchor(off)
	return Piece{Segment: seg, off: off, end: seg.used, Records: 1}
}

// Stats are the counters of a store.
type Stats struct {
	Keys      int
	LiveBytes int    // bytes of the live records
	LogBytes  int    // bytes of the segments in use
	IdleBytes int    // bytes of the retired and free segments
	Moved     uint64 // bytes copied by compaction
}

// LiveBytes returns the size of the live records in bytes.
func (s *Map) LiveBytes() int { return s.log.live }

// UnlinkedBytes returns the size of the records that Append has returned and that are not
// linked yet, in bytes.
func (s *Map) UnlinkedBytes() int { return s.log.unlinked }

// LogBytes returns the size of the segments in use in bytes.
func (s *Map) LogBytes() int { return s.log.bytes }

// Newest returns the newest record of key, or nil. It is a part of the log, and valid until the
// owner changes the map.
func (s *Map) Newest(hash uint64, key []byte) kvmsg.Record {
	_, _, r := s.search(hash, key)
	if r == nil {
		return nil
	}
	size := r.Size()
	return r[:size:size]
}

// SizeOf returns the size of the newest record of key in bytes, or 0 if there is none.
func (s *Map) SizeOf(hash uint64, key []byte) int {
	_, _, r := s.search(hash, key)
	if r == nil {
		return 0
	}
	return r.Size()
}

// References returns the number of references to segments with live records.
func (s *Map) References() (n int) {
	s.log.each(func(seg *Segment) { n += int(seg.refs.Load()) })
	return n
}

// Stats returns the current counters.
func (s *Map) Stats() Stats {
	s.Flush()
	return Stats{
		Keys:      s.count,
		LiveBytes: s.log.live,
		LogBytes:  s.log.bytes,
		IdleBytes: s.log.retiredSize + s.log.freeSize,
		Moved:     s.log.victim.moved,
	}
}
