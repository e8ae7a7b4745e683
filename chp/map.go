package chp

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// Map is a concurrent hashmap of strings to bytes, for many readers and many
// writers. It is the store under a CHP server, without the protocol: keys and
// values lie in a log that the garbage collector does not look into, values are
// copied in and out, and reading takes no lock.
//
// Use it for many keys, for values that change often, and where garbage
// collection must not grow with the map: a million keys are some hundred objects.
// Set costs less than that of sync.Map, and allocates once in a segment full of
// values and not every time. Do not use it for values that are Go objects, nor in
// one goroutine, where a plain map is faster. Get copies the value out; where that
// is too much, and values seldom change, a map that returns the slice it holds is
// the better choice.
//
// Any key and any value can be stored, empty ones too; the two together must stay
// below 2 GiB. All methods are safe for concurrent use.
//
// Overwritten and deleted values keep their memory for a while. The log holds
// twice what is live and some segments more for each stripe, at most; what it has
// given up is the garbage collector's.
type Map struct {
	stripes []mapStripe
	shift   uint
}

// MapOptions configures a [Map]. The zero value works.
type MapOptions struct {
	// Stripes is the number of parts that can be written to at the same time,
	// rounded up to a power of two, at most 1024. 0 means four for each core.
	// Every stripe that is in use costs some kilobytes.
	Stripes int
}

// mapStripe is a part of a Map. Readers only load the store.
type mapStripe struct {
	store atomic.Pointer[store.Map] // nil until the first Set
	_     [56]byte
	mu    sync.Mutex // held by the store's writer
	_     [56]byte
}

// MapStats are figures about a [Map], each stripe's as of one moment.
type MapStats struct {
	Len       int    // keys
	LiveBytes int    // bytes of the keys and values that can be read, with their framing
	LogBytes  int    // bytes of the memory that holds them, dead ones included
	IdleBytes int    // bytes of the memory that waits to be used again
	Compacted uint64 // bytes copied to give memory back, since the start
}

const (
	stripesPerCore = 4
	maxStripes     = 1024
)

// mapSegment is small: a Map has many stripes, and each has a log of its own.
const mapSegment = 8 << 10

// maxMapEntry bounds key and value of a Map together: offsets have 32 bits.
const maxMapEntry = math.MaxInt32 - 64

// NewMap returns an empty Map.
func NewMap(o MapOptions) *Map {
	n := o.Stripes
	if n <= 0 {
		n = stripesPerCore * cores()
	}
	n = 1 << bits.Len(uint(min(n, maxStripes)-1)) // a power of two
	m := &Map{stripes: make([]mapStripe, n)}
	for 1<<m.shift < n {
		m.shift++
	}
	return m
}

// stripe returns the stripe of a key. It takes bits of the hash that are neither
// those of the shard nor the first that a table uses, so that the tables of a
// stripe fill evenly.
func (m *Map) stripe(hash uint64) *mapStripe {
	return &m.stripes[store.SpareBits(hash)&uint64(len(m.stripes)-1)]
}

// shards returns the number of tables for the index of a stripe. All stripes
// together have 256 or more, as one store has; each has a few.
func (m *Map) shards() int { return max(store.MaxShards>>m.shift, 8) }

// Get returns a copy of the value of key, and whether there is one.
func (m *Map) Get(key string) ([]byte, bool) { return m.AppendGet(nil, key) }

// AppendGet appends the value of key to dst, and reports whether there is one. It
// takes no lock, and allocates only if dst has too little room.
func (m *Map) AppendGet(dst []byte, key string) ([]byte, bool) {
	hash := kvmsg.HashKey(bytesOf(key))
	s := m.stripe(hash).store.Load()
	if s == nil {
		return dst, false
	}
	return s.GetCollected(hash, bytesOf(key), dst)
}

// Set stores a copy of value under key. It panics if the two together have 2 GiB or more.
func (m *Map) Set(key string, value []byte) {
	if len(key) > maxMapEntry || len(value) > maxMapEntry-len(key) {
		panic("chp: Map.Set: key and value have 2 GiB or more")
	}
	hash := kvmsg.HashKey(bytesOf(key))
	p := m.stripe(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.store.Load()
	if s == nil {
		s = store.New(store.Options{MinSegment: mapSegment, Shards: m.shards(), Collected: true})
		p.store.Store(s)
	}
	s.PutHash(hash, bytesOf(key), value)
}

// Delete removes key, and reports whether it was there.
func (m *Map) Delete(key string) bool {
	hash := kvmsg.HashKey(bytesOf(key))
	p := m.stripe(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.store.Load()
	return s != nil && s.Delete(hash, bytesOf(key))
}

// Len returns the number of keys.
func (m *Map) Len() int {
	n := 0
	for i := range m.stripes {
		if s := m.stripes[i].store.Load(); s != nil {
			n += s.Len()
		}
	}
	return n
}

// Range calls f for every key until f returns false, in no order that means
// anything. Key and value are lent: f must not change them, nor keep them beyond
// its return. f may call any method of the Map, and may take its time: writers do
// not wait for it.
//
// What Range shows of a stripe is its state at one moment; the moments of
// different stripes differ.
func (m *Map) Range(f func(key, value []byte) bool) {
	for i := range m.stripes {
		if !m.stripes[i].each(f) {
			return
		}
	}
}

func (p *mapStripe) each(f func(key, value []byte) bool) (more bool) {
	s := p.store.Load()
	if s == nil {
		return true
	}
	p.mu.Lock()
	c := s.Cut()
	p.mu.Unlock()
	defer c.Release() // also if f panics
	more = true
	c.Records(func(r kvmsg.Record) bool {
		more = f(r.Key(), r.Value())
		return more
	})
	return more
}

// Stats returns figures about the Map. It takes the lock of each stripe in turn.
func (m *Map) Stats() MapStats {
	var sum MapStats
	for i := range m.stripes {
		p := &m.stripes[i]
		s := p.store.Load()
		if s == nil {
			continue
		}
		p.mu.Lock()
		st := s.Stats()
		p.mu.Unlock()
		sum.Len += st.Keys
		sum.LiveBytes += st.LiveBytes
		sum.LogBytes += st.LogBytes
		sum.IdleBytes += st.IdleBytes
		sum.Compacted += st.Moved
	}
	return sum
}
