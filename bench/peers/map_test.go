package peers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"clustermap/chp"

	"github.com/puzpuzpuz/xsync/v4"
)

// hashmap is what the maps have in common. get returns the value, which may be in
// dst; set keeps no reference to value, since the caller will use it again.
type hashmap interface {
	get(key string, dst []byte) []byte
	set(key string, value []byte)
}

type ours struct{ m *chp.Map }

func (o ours) get(key string, dst []byte) []byte {
	dst, _ = o.m.AppendGet(dst[:0], key)
	return dst
}
func (o ours) set(key string, value []byte) { o.m.Set(key, value) }

type syncMap struct{ m *sync.Map }

func (s syncMap) get(key string, _ []byte) []byte {
	v, _ := s.m.Load(key)
	return v.([]byte)
}
func (s syncMap) set(key string, value []byte) { s.m.Store(key, bytes.Clone(value)) }

type xsyncMap struct{ m *xsync.Map[string, []byte] }

func (x xsyncMap) get(key string, _ []byte) []byte {
	v, _ := x.m.Load(key)
	return v
}
func (x xsyncMap) set(key string, value []byte) { x.m.Store(key, bytes.Clone(value)) }

type lockedMap struct {
	mu sync.RWMutex
	m  map[string][]byte
}

func (l *lockedMap) get(key string, _ []byte) []byte {
	l.mu.RLock()
	v := l.m[key]
	l.mu.RUnlock()
	return v
}
func (l *lockedMap) set(key string, value []byte) {
	value = bytes.Clone(value)
	l.mu.Lock()
	l.m[key] = value
	l.mu.Unlock()
}

const (
	valueSize = 32
	absent    = 0xFF // not the first byte of any value
)

// BenchmarkMap runs chp.Map and another map in turns on the same keys of 11 bytes,
// with values of 32. Keys are used in another order than they were set in first, so
// that nobody finds things lying in the order in which they are wanted. On Get, ours copies the value out and the
// others return the slice they hold; its first byte is looked at, since who asks
// for a value wants to see it. On Set all take a copy.
//
// ns/op is that of both together. ours-ns and peer-ns are the medians of the turns,
// and ratio is the median of peer/ours: above 1, ours is faster.
func BenchmarkMap(b *testing.B) {
	for _, size := range []int{10_000, 1_000_000} {
		keys := make([]string, size)
		for i := range keys {
			keys[i] = fmt.Sprintf("/k/%08d", i)
		}
		shuffled := slices.Clone(keys)
		rand.New(rand.NewPCG(1, 1)).Shuffle(size, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		fill := func(m hashmap) hashmap {
			for _, key := range keys {
				m.set(key, make([]byte, valueSize))
			}
			return m
		}
		us := fill(ours{chp.NewMap(chp.MapOptions{})})
		for _, peer := range []struct {
			name string
			make func() hashmap
		}{
			{"sync.Map", func() hashmap { return syncMap{new(sync.Map)} }},
			{"xsync.Map", func() hashmap { return xsyncMap{xsync.NewMap[string, []byte]()} }},
			{"RWMutex+map", func() hashmap { return &lockedMap{m: map[string][]byte{}} }},
		} {
			them := fill(peer.make())
			for _, op := range []string{"get", "set"} {
				for _, goroutines := range []int{1, runtime.GOMAXPROCS(0)} {
					name := "serial"
					if goroutines > 1 {
						name = "parallel"
					}
					b.Run(fmt.Sprintf("keys=%d/%s/%s/%s", size, peer.name, op, name), func(b *testing.B) {
						turns(b, func(n int) { work(us, shuffled, op, n, goroutines) }, func(n int) { work(them, shuffled, op, n, goroutines) })
					})
				}
			}
		}
	}
}

// work does n operations, divided among goroutines, each on other keys.
func work(m hashmap, keys []string, op string, n, goroutines int) {
	var wg sync.WaitGroup
	for g := range goroutines {
		run := func() {
			at := rand.IntN(len(keys))
			value := bytes.Repeat([]byte{byte(g)}, valueSize)
			var dst []byte
			for range n / goroutines {
				if at++; at == len(keys) {
					at = 0
				}
				if op == "set" {
					m.set(keys[at], value)
				} else if dst = m.get(keys[at], dst); len(dst) != valueSize || dst[0] == absent {
					panic("a key is lost")
				}
			}
		}
		if goroutines == 1 {
			run()
		} else {
			wg.Go(run)
		}
	}
	wg.Wait()
}

// turns runs a and b one after the other, several times over, and reports the
// medians.
func turns(b *testing.B, us, them func(n int)) {
	const rounds = 15
	n := max(b.N/rounds/2, 1)
	var our, their, ratio []float64
	for range rounds {
		t0 := time.Now()
		us(n)
		t1 := time.Now()
		them(n)
		t2 := time.Now()
		o, t := float64(t1.Sub(t0))/float64(n), float64(t2.Sub(t1))/float64(n)
		our, their, ratio = append(our, o), append(their, t), append(ratio, t/o)
	}
	b.ReportMetric(median(our), "ours-ns")
	b.ReportMetric(median(their), "peer-ns")
	b.ReportMetric(median(ratio), "ratio")
}
