package order

import (
	"cmp"
	"slices"
	"strings"

	"clustermap/chp/internal/state"
	"clustermap/chp/internal/subtree"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// Share bounds what a client may add to some parts of the map: all that is in these counts, whoever has set it. The map itself
// says how much that is, so it is exact, also after a restart and at a server that takes over. Nothing is kept for it in a log.
type Share struct {
	specs []string
	keys  int64 // most keys, or 0
	bytes int64 // most bytes, or 0

	// Guarded by the sequencer's mutex.
	parts []*part // of which none has a key of another one
	turn  uint64  // shares.turn when they were found
}

// NewShare returns the share of a client that may write some parts of the map, as package subtree describes them. None of them covers
// another one. 0 means no limit.
func NewShare(specs []string, keys, bytes int64) *Share {
	return &Share{specs: specs, keys: keys, bytes: bytes}
}

// part counts the keys of a subtree, or a single one.
type part struct {
	spec        string
	outer       *part // the smallest other one that has all keys of this, or nil
	keys, bytes int64 // of the map and the updates that are ordered
}

// shares are the parts of the map that some clients may not fill. The sequencer's mutex guards them. Without parts
// an update costs nothing.
type shares struct {
	parts []*part              // by their specifications
	ahead map[uint64]aheadSize // by the hashes of keys: updates that are ordered, and not in the map
	some  map[uint64]int64     // sizes after updates that are being judged
	turn  uint64               // counts the calls of Count
}

// aheadSize is the size of the newest record of a key, or 0 after a deletion, and its sequence.
type aheadSize struct {
	size int64
	seq  int64
}

// Count counts what is in parts of the map that shares will have, at once, and forgets the others. A part of which it was not told is counted when
// it is needed for the first time.
func (q *Sequencer) Count(specs []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shares = shares{turn: q.shares.turn + 1}
	q.count(specs)
}

// index returns where a part is, or would be.
func (h *shares) index(spec string) (int, bool) {
	return slices.BinarySearchFunc(h.parts, spec, func(p *part, spec string) int { return cmp.Compare(p.spec, spec) })
}

// count adds parts that are new, and counts then. mu must be held.
func (q *Sequencer) count(specs []string) {
	h, before := &q.shares, len(q.shares.parts)
	for _, spec := range specs {
		if i, ok := h.index(spec); !ok {
			h.parts = slices.Insert(h.parts, i, &part{spec: spec})
		}
	}
	if len(h.parts) > before {
		q.recount()
	}
}

// recount counts what is in the parts: in the map, and held. mu must be held.
func (q *Sequencer) recount() {
	h := &q.shares
	if len(h.parts) == 0 {
		return
	}
	h.ahead = map[uint64]aheadSize{}
	var last *part
	for _, p := range h.parts {
		p.keys, p.bytes, p.outer = 0, 0, last
		for p.outer != nil && !p.outer.has([]byte(p.spec)) {
			p.outer = p.outer.outer
		}
		last = p
	}
	c := q.state.Store.Cut()
	defer c.Release()
	c.Records(func(r kvmsg.Record) bool {
		h.find(r.Key()).add(1, int64(r.Size()))
		return true
	})
	for i := range q.held.batches.Len() {
		b := q.held.batches.At(i)
		seq := b.First
		b.records(func(r kvmsg.Record, hash uint64) {
			q.note(r, hash, seq, true)
			seq++
		})
	}
}

// has reports whether a key, or all keys of a subtree, are in a part.
func (p *part) has(key []byte) bool {
	return string(key) == p.spec || subtree.IsTree(p.spec) && strings.HasPrefix(string(key), p.spec)
}

// find returns the smallest part with a key, or nil. If p has it, any part between p and the key in the order of their specifications
// begins with p's, so p is among those around the last one that is not above the key.
func (h *shares) find(key []byte) *part {
	low, high := 0, len(h.parts)
	for low < high {
		if mid := int(uint(low+high) >> 1); h.parts[mid].spec <= string(key) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return nil
	}
	p := h.parts[low-1]
	for p != nil && !p.has(key) {
		p = p.outer
	}
	return p
}

// add adds keys and bytes to a part and those around it.
func (p *part) add(keys, bytes int64) {
	for ; p != nil; p = p.outer {
		p.keys += keys
		p.bytes += bytes
	}
}

// noteEntry counts the updates of an entry, which has its sequences. They are not in the map, and will not be for a while if later is set.
// mu must be held.
func (q *Sequencer) noteEntry(e *state.Entry, later bool) {
	for i, span := range e.Spans {
		q.note(kvmsg.Record(e.Wire[span.Start:span.End]), span.Tag&^kvmsg.TagFlags, e.First+int64(i), later || len(e.Spans) > 1)
	}
}

// note counts an update. ahead says that others may be ordered before the map has it. mu must be held.
func (q *Sequencer) note(r kvmsg.Record, hash uint64, seq int64, ahead bool) {
	key := r.Key()
	p := q.shares.find(key)
	if p == nil {
		return
	}
	size := sizeOf(r)
	before := q.sizeNow(hash, key)
	p.add(added(before, size), size-before)
	if ahead {
		q.shares.ahead[hash] = aheadSize{size, seq}
	}
}

// noteLinked forgets the updates of a batch, which the map now has. mu must be held.
func (q *Sequencer) noteLinked(b *heldBatch) {
	if len(q.shares.ahead) == 0 {
		return
	}
	seq := b.First
	b.records(func(_ kvmsg.Record, hash uint64) {
		if q.shares.ahead[hash].seq == seq {
			delete(q.shares.ahead, hash)
		}
		seq++
	})
}

// sizeOf returns the size of a record in the map, or 0 if it deletes its key.
func sizeOf(r kvmsg.Record) int64 {
	if len(r.Value()) == 0 {
		return 0
	}
	return int64(len(r))
}

// sizeNow returns the size of a key's record after all that is ordered. mu must be held.
func (q *Sequencer) sizeNow(hash uint64, key []byte) int64 {
	if a, ok := q.shares.ahead[hash]; ok {
		return a.size
	}
	return int64(q.state.Store.SizeOf(hash, key))
}

// added returns how many keys an update adds.
func added(before, after int64) int64 {
	switch {
	case before == 0 && after > 0:
		return 1
	case before > 0 && after == 0:
		return -1
	}
	return 0
}

// use is what a client uses of its share.
type use struct{ keys, bytes int64 }

// used returns what is in the parts of a share. mu must be held.
func (q *Sequencer) used(s *Share) (u use) {
	h := &q.shares
	if h.some == nil {
		h.some = map[uint64]int64{}
	}
	if s.parts == nil || s.turn != h.turn {
		q.count(s.specs)
		s.parts, s.turn = make([]*part, 0, len(s.specs)), h.turn
		for _, spec := range s.specs {
			i, _ := h.index(spec)
			s.parts = append(s.parts, h.parts[i])
		}
	}
	for _, p := range s.parts {
		u.keys += p.keys
		u.bytes += p.bytes
	}
	return u
}

// takes reports whether a share has room for an update that changes the size of a record, and takes it. Deletions always fit, and so does
// what makes no record larger.
func (s *Share) takes(u *use, before, after int64) bool {
	keys, bytes := added(before, after), after-before
	if s.keys > 0 && keys > 0 && u.keys >= s.keys || s.bytes > 0 && bytes > 0 && u.bytes+bytes > s.bytes {
		return false
	}
	u.keys += keys
	u.bytes += bytes
	return true
}

// within returns the updates for which their client's share has room, in the memory of spans. The others it adds to unfit.
// mu must be held.
func (q *Sequencer) within(s *Share, wire []byte, spans []buf.Span, by string) []buf.Span {
	u, kept := q.used(s), spans[:0]
	clear(q.shares.some)
	for _, span := range spans {
		r, hash := kvmsg.Record(wire[span.Start:span.End]), span.Tag&^kvmsg.TagFlags
		before, known := q.shares.some[hash]
		if !known {
			before = q.sizeNow(hash, r.Key())
		}
		after := sizeOf(r)
		if after > 0 {
			after += q.grown(1, by)
		}
		if !s.takes(&u, before, after) {
			q.refuse(span, kvmsg.ErrLimit)
			continue
		}
		if len(spans) > 1 {
			q.shares.some[hash] = after
		}
		kept = append(kept, span)
	}
	return kept
}

// shared is within for the request in j: all of its updates, or none. It adds them to used. mu must be held.
func (q *Sequencer) shared(j *judge, from From, used *use) bool {
	clear(q.shares.some)
	for _, r := range j.request.Records() {
		key := r.Key()
		hash := kvmsg.HashKey(key)
		before, known := q.shares.some[hash]
		if u := j.newest.get(hash); !known && u != nil && j.record(u).HasKey(key) {
			if before, known = sizeOf(j.record(u)), true; before > 0 {
				before += q.grown(1, from.By)
			}
		}
		if !known {
			before = q.sizeNow(hash, key)
		}
		after := sizeOf(r)
		if after > 0 {
			after += q.grown(1, from.By)
		}
		if !from.Share.takes(used, before, after) {
			return false
		}
		q.shares.some[hash] = after
	}
	return true
}
