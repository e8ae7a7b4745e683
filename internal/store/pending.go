package store

import (
	"sync/atomic"
	"unsafe"

	"clustermap/internal/buf"
	"clustermap/internal/invariants"
	"clustermap/internal/kvmsg"
)

// pending has the records that are in the log and not in the index yet.
//
// In a large map, a call of PutHash would miss the cache twice in a row: for the slot of
// the key, and for the record to which that points. So it does not wait for them. It
// appends the record, prefetches the slot, and leaves the record pending. A later call
// finds the slot and prefetches the old record, and a call after that, which needs the
// place, links the record. These are the three steps of link, one record at a time.
//
// A reader looks for a key among the pending records first, and then in the index. It
// finds the value that the key had at a moment during its search:
//
//   - A record that becomes pending is the newest one of its key and the only pending one:
//     all others are linked and removed first if one of them may have that key.
//   - A record is set when places has it. tags has its tag before that, so from then on
//     every reader looks into places.
//   - The writer links a record before tags or places lose it. So a reader that begins
//     after it was set, and does not find it here, finds it or a newer one in the index.
//   - A reader that loaded tags or places before the record was there began before it was
//     set. If it finds an older record in the index, that was the newest one at the moment
//     before.
//
// All pending records are in the head of the log. Flush links them before there is a new
// head, and before a cut. Compaction does not meet them, since it reads sealed segments.
type pending struct {
	_ [64]byte

	// The tags of the pending records, 16 bits each, so that readers know from one load
	// that a key is not among them. A place that was never used has tag 0.
	tags atomic.Uint64

	// The future values of the pending records' slots, or 0.
	places [pendingRecords]atomic.Uint64

	// Owned by the writer.
	next    uint32 // the place of the next record, modulo pendingRecords: that of the oldest
	records [pendingRecords]pendingRecord

	_ [64]byte
}

// pendingRecord is a pending record. A size of 0 means none.
type pendingRecord struct {
	hash      uint64
	off, size uint32    // in the head
	found     candidate // the slot of its key, from the second step on
}

const (
	// pendingRecords is the number of records that may be pending. Half of them wait for
	// the second step, the others for the third one: with the stripes of a chp.Map, in which
	// calls take turns, that is longer than a load from memory.
	pendingRecords = 4

	// placeBits is the number of bits of a tag in pending.tags.
	placeBits = 64 / pendingRecords
)

// putPending is PutHash for a record of size bytes that may stay pending.
func (s *Map) putPending(hash uint64, key, value []byte, size int) {
	q := &s.pending
	if q.mayHave(hash) {
		s.Flush()
	}
	p := s.reserve(size)
	kvmsg.AppendRecord(p.Segment.buf[:p.off], key, 0, nil, nil, value)
	if p.Segment != s.log.head || len(key) > kvmsg.MaxKey {
		s.set(hash, p.Segment, p.off, size)
		return
	}
	if next := int(p.off) + headAhead; next < len(p.Segment.buf) {
		prefetch(unsafe.Pointer(&p.Segment.buf[next]))
	}
	s.prefetchSlot(hash)
	n := q.next % pendingRecords
	q.next++
	s.linkPending(n)
	q.records[n] = pendingRecord{hash: hash, off: p.off, size: uint32(size)}
	q.tags.Store(q.tags.Load()&^((1<<placeBits-1)<<(n*placeBits)) | tagOf(hash)<<(n*placeBits))
	q.places[n].Store(slotValue(hash, locate(p.Segment, p.off)))

	if r := &q.records[(n+pendingRecords/2)%pendingRecords]; r.size != 0 {
		if r.found = s.candidate(r.hash); r.found.value != 0 {
			at := slotLocation(r.found.value)
			old := s.log.segment(at)
			prefetchOld(unsafe.Pointer(&old.buf[at.offset()]), unsafe.Pointer(old.block(at.offset())))
		}
	}
}

// linkPending points the index to the pending record in place n, if there is one.
func (s *Map) linkPending(n uint32) {
	if r := &s.pending.records[n]; r.size != 0 {
		invariants.Assert(!s.log.head.sealed, "pending records are in the head")
		s.linkOne(s.log.head, &buf.Span{Start: r.off, End: r.off + r.size, Tag: r.hash}, 0, r.found)
	}
}

// Pending reports whether there are pending records: Len does not count keys that only
// they have. Readers may call it.
func (s *Map) Pending() bool { return s.pending.tags.Load() != 0 }

// Flush links the pending records.
func (s *Map) Flush() {
	if !s.Pending() {
		return
	}
	q := &s.pending
	for range q.records {
		n := q.next % pendingRecords
		q.next++
		s.linkPending(n)
		q.records[n].size = 0
	}
	s.publish() // before readers of Pending and Len see that there are none
	q.tags.Store(0)
	for n := range q.places {
		q.places[n].Store(0)
	}
}

// mayHave returns false if no pending record has the key with the given hash. Readers
// may call it.
func (q *pending) mayHave(hash uint64) bool {
	const ones = 1<<(3*placeBits) | 1<<(2*placeBits) | 1<<placeBits | 1
	// A place of x is 0 if it has the tag. Then its highest bit is set in the difference
	// and not in x.
	x := q.tags.Load() ^ tagOf(hash)*ones
	return (x-ones)&^x&(ones<<(placeBits-1)) != 0
}

// findPending returns the pending record of key, or nil. The result extends to the end of
// its segment. Readers may call it as they may call find.
func (s *Map) findPending(hash uint64, key []byte) kvmsg.Record {
	tag := tagOf(hash)
again:
	for i := range s.pending.places {
		if v := s.pending.places[i].Load(); v>>tagShift == tag {
			at := slotLocation(v)
			seg := s.log.segment(at)
			if seg == nil {
				goto again // the record was linked and superseded
			}
			if r := seg.record(at.offset()); r.HasKey(key) {
				return r
			}
		}
	}
	return nil
}
