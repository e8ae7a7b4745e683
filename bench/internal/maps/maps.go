// Package maps has chp.Map and the maps of the standard library behind one interface,
// for benchmarks that compare them, and the work to give to a map.
package maps

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"clustermap/chp"
)

// Map is the interface that the maps share. All methods are safe for concurrent use.
type Map interface {
	// Get returns the value of a key that exists. It may be in dst.
	Get(key string, dst []byte) []byte
	// Set stores a copy of value.
	Set(key string, value []byte)
	// Range calls f with each value, for as long as f runs.
	Range(f func(value []byte))
}

// Kind is a map to compare.
type Kind struct {
	Name string
	New  func() Map
}

// Kinds are chp.Map and those of the standard library.
var Kinds = []Kind{
	{"chp.Map", func() Map { return ours{chp.NewMap(chp.MapOptions{})} }},
	{"sync.Map", func() Map { return new(syncMap) }},
	{"RWMutex+map", func() Map { return &lockedMap{m: map[string][]byte{}} }},
}

type ours struct{ m *chp.Map }

func (o ours) Get(key string, dst []byte) []byte {
	dst, _ = o.m.AppendGet(dst[:0], key)
	return dst
}
func (o ours) Set(key string, value []byte) { o.m.Set(key, value) }
func (o ours) Range(f func(value []byte)) {
	o.m.Range(func(_, value []byte) bool {
		f(value)
		return true
	})
}

type syncMap struct{ m sync.Map }

func (s *syncMap) Get(key string, _ []byte) []byte {
	v, _ := s.m.Load(key)
	value, _ := v.([]byte)
	return value
}
func (s *syncMap) Set(key string, value []byte) { s.m.Store(key, bytes.Clone(value)) }
func (s *syncMap) Range(f func(value []byte)) {
	s.m.Range(func(_, v any) bool {
		f(v.([]byte))
		return true
	})
}

type lockedMap struct {
	mu sync.RWMutex
	m  map[string][]byte
}

func (l *lockedMap) Get(key string, _ []byte) []byte {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.m[key]
}
func (l *lockedMap) Set(key string, value []byte) {
	value = bytes.Clone(value)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m[key] = value
}
func (l *lockedMap) Range(f func(value []byte)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, value := range l.m {
		f(value)
	}
}

// valueSize is the size of each value in bytes. A value begins with the number of its
// key.
const valueSize = 32

const keySize = 11

// key returns the i-th key, of 11 bytes.
func key(i int) string { return fmt.Sprintf("/k/%08d", i) }

// Fill sets n keys.
func Fill(m Map, n int) {
	value := make([]byte, valueSize)
	for i := range n {
		binary.LittleEndian.PutUint64(value, uint64(i))
		m.Set(key(i), value)
	}
}

// Check goes through the whole map, and fails unless it has n keys, each with a value of
// its own.
func Check(m Map, n int) error {
	keys, sum := 0, uint64(0)
	m.Range(func(value []byte) {
		keys++
		if len(value) == valueSize {
			sum += binary.LittleEndian.Uint64(value)
		}
	})
	if want := uint64(n) * uint64(n-1) / 2; keys != n || sum != want {
		return fmt.Errorf("%d keys with a sum of %d, want %d with %d", keys, sum, n, want)
	}
	return nil
}

// Load is work on a map: keys in another order than that in which Fill sets them, and in
// one order to get and another to set, so that no map finds them lying in the order in
// which they are wanted. To the garbage collector it is a few objects.
type Load struct{ gets, sets order }

// order is all keys in some order.
type order struct {
	keys    string // one after the other
	numbers []uint32
}

// NewLoad returns the work on n keys.
func NewLoad(n int) *Load { return &Load{gets: newOrder(n, 1), sets: newOrder(n, 2)} }

func newOrder(n int, seed uint64) order {
	numbers := make([]uint32, n)
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(n, func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
	var keys strings.Builder
	keys.Grow(n * keySize)
	for _, i := range numbers {
		keys.WriteString(key(int(i)))
	}
	return order{keys.String(), numbers}
}

// at returns the i-th key and its number.
func (o *order) at(i int) (key string, number uint64) {
	return o.keys[i*keySize : (i+1)*keySize], uint64(o.numbers[i])
}

// len returns the number of keys.
func (l *Load) len() int { return len(l.gets.numbers) }

// Ops are the operations of Run: only Get, only Set, and nine Get to one Set.
var Ops = []string{"get", "set", "mixed"}

// Run does n operations on m, divided among goroutines, each of which begins at another
// key. It fails if a Get returns another value than that of its key.
func (l *Load) Run(m Map, op string, n, goroutines int) error {
	every := map[string]int{"get": 0, "set": 1, "mixed": 10}[op]
	if goroutines == 1 {
		return l.run(m, every, rand.IntN(l.len()), n)
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	at := rand.IntN(l.len())
	for g := range goroutines {
		part := n / goroutines
		if g < n%goroutines {
			part++
		}
		wg.Go(func() {
			if err := l.run(m, every, (at+g*l.len()/goroutines)%l.len(), part); err != nil {
				failed.Store(&err)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// run does n operations from an entry on, of which each every-th is a Set.
func (l *Load) run(m Map, every, at, n int) error {
	value := make([]byte, valueSize)
	dst := make([]byte, 0, valueSize)
	left := every
	for range n {
		if at++; at >= l.len() {
			at = 0
		}
		if left--; left == 0 {
			left = every
			key, number := l.sets.at(at)
			binary.LittleEndian.PutUint64(value, number)
			m.Set(key, value)
			continue
		}
		key, number := l.gets.at(at)
		dst = m.Get(key, dst)
		if len(dst) != valueSize || binary.LittleEndian.Uint64(dst) != number {
			return fmt.Errorf("%s has %x", key, dst)
		}
	}
	return nil
}

// Heap returns how many bytes of the heap are in use after a garbage collection.
func Heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// Goroutines returns 1, 2, 4 and so on, up to the number of cores.
func Goroutines() (all []int) {
	for n := 1; n < runtime.GOMAXPROCS(0); n *= 2 {
		all = append(all, n)
	}
	return append(all, runtime.GOMAXPROCS(0))
}
