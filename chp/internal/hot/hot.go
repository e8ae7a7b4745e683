// Package hot finds the keys that are updated most, in constant memory and at a bounded cost: the
// Space-Saving algorithm of Metwally, Agrawal and El Abbadi on a sample of each batch. A key whose
// share of the updates is above one in [Tracked] is among those that it has.
package hot

import (
	"cmp"
	"container/heap"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// Sketch counts the updates of keys. It is not safe for concurrent use.
type Sketch struct {
	Began time.Duration // when it was made
	Asked time.Duration // when it was last asked

	updates, bytes uint64 // of all keys, since it was made

	seed    maphash.Seed
	random  *rand.PCG
	byHash  map[uint64]*entry
	least   entries // a heap: the one with the lowest count first
	entries []entry // their memory
}

// entry is the count of a key.
type entry struct {
	key     [kvmsg.MaxKey]byte
	length  uint8
	hash    uint64
	at      int    // in the heap
	updates uint64 // at most so many, counted and inherited
	unsure  uint64 // of those, the inherited ones: of keys whose place it has taken
	bytes   uint64
}

// Key is a key with its count.
type Key struct {
	Key             string
	Updates, Unsure uint64 // updates of the key at most, and how many of those it may not have had
	Bytes           uint64 // of its updates, since it is counted
}

// New returns an empty sketch.
func New(now time.Duration) *Sketch {
	return &Sketch{
		Began: now, Asked: now, seed: maphash.MakeSeed(), random: rand.NewPCG(rand.Uint64(), rand.Uint64()),
		byHash: make(map[uint64]*entry, Tracked), least: make(entries, 0, Tracked), entries: make([]entry, 0, Tracked),
	}
}

// Add counts updates in wire form, of which only the sizes of the spans matter: at most sample of
// them, which stand for all.
func (s *Sketch) Add(wire []byte, spans []buf.Span) {
	s.updates += uint64(len(spans))
	s.bytes += uint64(len(wire))
	stride := (len(spans) + sample - 1) / sample
	next := 0
	if stride > 1 {
		next = int(s.random.Uint64() % uint64(stride))
	}
	at := 0
	for i, span := range spans {
		size := int(span.End - span.Start)
		if i == next {
			s.count(kvmsg.Record(wire[at:at+size]).Key(), uint64(stride), uint64(stride*size))
			next += stride
		}
		at += size
	}
}

func (s *Sketch) count(key []byte, updates, bytes uint64) {
	hash := maphash.Bytes(s.seed, key)
	e := s.byHash[hash]
	switch {
	case e != nil:
	case len(s.entries) < Tracked:
		s.entries = append(s.entries, entry{at: len(s.least)})
		e = &s.entries[len(s.entries)-1]
		e.take(key, hash)
		s.byHash[hash] = e
		heap.Push(&s.least, e)
	default:
		e = s.least[0]
		delete(s.byHash, e.hash)
		e.take(key, hash)
		e.unsure, e.bytes = e.updates, 0
		s.byHash[hash] = e
	}
	e.updates += updates
	e.bytes += bytes
	heap.Fix(&s.least, e.at)
}

func (e *entry) take(key []byte, hash uint64) {
	e.length, e.hash = uint8(copy(e.key[:], key)), hash
}

// Totals returns the numbers of updates and bytes of all keys since the sketch was made.
func (s *Sketch) Totals() (updates, bytes uint64) { return s.updates, s.bytes }

// Keys returns the keys that it has, in no order.
func (s *Sketch) Keys() []Key {
	all := make([]Key, len(s.entries))
	for i := range s.entries {
		e := &s.entries[i]
		all[i] = Key{string(e.key[:e.length]), e.updates, e.unsure, e.bytes}
	}
	return all
}

// Top returns the keys with most updates for certain, at most n of them, in that order.
func Top(all []Key, n int) []Key {
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Updates-b.Unsure, a.Updates-a.Unsure), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))]
}

// entries is a heap.
type entries []*entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].updates < h[j].updates }
func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *entries) Push(e any) { *h = append(*h, e.(*entry)) }

// Pop is not used: entries stay.
func (h *entries) Pop() any { panic("hot: an entry was removed") }
