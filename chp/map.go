package chp

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// Map is a concurrent hash map from strings to byte slices, for many readers and many
// writers. It is the storage of a CHP server, without the protocol: keys and values lie
// in a log that the garbage collector does not scan, values are copied in and out, and
// readers take no lock.
//
// Use it for many keys, for values that change often, and where the cost of garbage
// collection must not grow with the map: a million keys are a few hundred objects. Set
// costs less than that of sync.Map and does not allocate each time, but once per
// segment of values. Do not use it for values that are Go objects, nor in a single
// goroutine, where a plain map is faster. Get copies the value; if that costs too much
// and values seldom change, use a map that returns the slice that it stores.
//
// Keys and values can be arbitrary, also empty; key and value together must be smaller
// than 2 GiB. All methods are safe for concurrent use.
//
// Overwritten and deleted values keep their memory for a while. While values are set, each
// stripe's log is at most twice as large as the live data, plus a few segments; the garbage
// collector frees the rest. After many deletions the log shrinks with later calls of Set.
type Map struct {
	stripes []mapStripe
	shift   uint
}

// MapOptions configures a [Map]. The zero value is usable.
type MapOptions struct {
	// Stripes is the number of parts that can be written to at the same time, rounded
	// up to a power of two, at most 1024. 0 means four per core. Every stripe in use
	// costs a few kilobytes.
	Stripes int
}

// mapStripe is a part of a Map. Readers only load the store.
type mapStripe struct {
	store atomic.Pointer[store.Map] // nil until the first Set
	_     [56]byte
	mu    sync.Mutex // held by the store's writer
	_     [56]byte
}

// MapStats holds figures about a [Map]. Those of each stripe are consistent.
type MapStats struct {
	Len       int    // keys
	LiveBytes int    // bytes of the current keys and values, with their framing
	LogBytes  int    // bytes of the log, with overwritten and deleted values
	IdleBytes int    // bytes of free segments kept for reuse
	Compacted uint64 // bytes copied by compaction since NewMap
}

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

// stripe returns the stripe of a key. It uses bits of the hash that neither select the
// shard nor are the first that a table uses, so that the tables of a stripe fill
// evenly.
func (m *Map) stripe(hash uint64) *mapStripe {
	return &m.stripes[store.SpareBits(hash)&uint64(len(m.stripes)-1)]
}

// shards returns the number of tables in the index of a stripe. All stripes together
// have at least 256, as one store has.
func (m *Map) shards() int { return max(store.MaxShards>>m.shift, 8) }

// Get returns a copy of the value of key, and whether the key exists.
func (m *Map) Get(key string) ([]byte, bool) { return m.AppendGet(nil, key) }

// AppendGet appends the value of key to dst and reports whether the key exists. It
// takes no lock, and allocates only to grow dst.
func (m *Map) AppendGet(dst []byte, key string) ([]byte, bool) {
	hash := kvmsg.HashKey(bytesOf(key))
	s := m.stripe(hash).store.Load()
	if s == nil {
		return dst, false
	}
	return s.GetGarbageCollected(hash, bytesOf(key), dst)
}

// Set stores a copy of value under key. It panics if the two together have 2 GiB or more.
func (m *Map) Set(key string, value []byte) {
	if len(key) > maxMapEntry || len(value) > maxMapEntry-len(key) {
		panic("chp: Map.Set: key and value have 2 GiB or more")
	}
	hash := kvmsg.HashKey(bytesOf(key))
	p := m.stripe(hash)
	p.mu.Lock()
	s := p.store.Load()
	if s == nil {
		s = store.New(store.Options{MinSegment: mapSegment, Shards: m.shards(), GarbageCollected: true})
		p.store.Store(s)
	}
	s.PutHash(hash, bytesOf(key), value)
	p.mu.Unlock()
}

// Delete deletes key, and reports whether it existed.
func (m *Map) Delete(key string) bool {
	hash := kvmsg.HashKey(bytesOf(key))
	p := m.stripe(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.store.Load()
	return s != nil && s.Delete(hash, bytesOf(key))
}

// Len returns the number of keys. In a large map that is being written to it locks one
// stripe after the other.
func (m *Map) Len() int {
	n := 0
	for i := range m.stripes {
		p := &m.stripes[i]
		s := p.store.Load()
		if s == nil {
			continue
		}
		if s.Pending() {
			p.mu.Lock()
			s.Flush()
			p.mu.Unlock()
		}
		n += s.Len()
	}
	return n
}

// Range calls f for every key, in no particular order, until f returns false. The
// slices key and value are valid only during the call; f must not change or keep them.
// f may call any method of the Map, and may be slow: writers do not wait for it.
//
// Range sees each stripe at one moment, but different stripes at different moments.
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

// Stats returns figures about the map. It locks one stripe after the other.
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
