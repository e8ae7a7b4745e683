// Package bench measures the layers of clustermap as a user would use them.
//
//	go test -bench . ./bench
//
// Figures of one machine at one moment mean little. What is compared with others
// runs beside them, in the module bench/peers.
package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"clustermap/chp"
)

// mapKeys returns n keys.
func mapKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("/k/%08d", i)
	}
	return keys
}

// filled returns a Map in which every key has a value of 32 bytes.
func filled(b *testing.B, keys []string) *chp.Map {
	m := chp.NewMap(chp.MapOptions{})
	for _, key := range keys {
		m.Set(key, make([]byte, 32))
	}
	if m.Len() != len(keys) {
		b.Fatalf("%d keys, want %d", m.Len(), len(keys))
	}
	return m
}

var mapSizes = []int{10_000, 1_000_000}

// BenchmarkMap measures chp.Map with keys of 11 bytes and values of 32: Get with
// the value copied into a buffer, Set of a key that is there, and nine Gets to one
// Set; in one goroutine, and in as many as there are cores.
func BenchmarkMap(b *testing.B) {
	for _, size := range mapSizes {
		keys := mapKeys(size)
		m := filled(b, keys)
		// Not in the order in which they lie in the log.
		rand.New(rand.NewPCG(1, 1)).Shuffle(size, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		value := make([]byte, 32)
		get := func(i int, dst []byte) []byte {
			dst, ok := m.AppendGet(dst[:0], keys[i])
			if !ok || len(dst) != len(value) {
				panic("a key is lost")
			}
			return dst
		}
		set := func(i int, dst []byte) []byte {
			m.Set(keys[i], value)
			return dst
		}
		mixed := func(i int, dst []byte) []byte {
			if i%10 == 0 {
				return set(i, dst)
			}
			return get(i, dst)
		}
		for _, op := range []struct {
			name string
			do   func(i int, dst []byte) []byte
		}{{"get", get}, {"set", set}, {"mixed", mixed}} {
			b.Run(fmt.Sprintf("keys=%d/%s/serial", size, op.name), func(b *testing.B) {
				b.ReportAllocs()
				var dst []byte
				for i := range b.N {
					dst = op.do(i%size, dst)
				}
			})
			b.Run(fmt.Sprintf("keys=%d/%s/parallel", size, op.name), func(b *testing.B) {
				b.ReportAllocs()
				var part atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					// Each goroutine begins somewhere else.
					i := int(part.Add(1)) * size / runtime.GOMAXPROCS(0)
					var dst []byte
					for pb.Next() {
						i++
						dst = op.do(i%size, dst)
					}
				})
			})
		}
		runtime.KeepAlive(m)
	}
}

// BenchmarkMapRange measures going through all of a million keys.
func BenchmarkMapRange(b *testing.B) {
	m := filled(b, mapKeys(1_000_000))
	b.ResetTimer()
	for range b.N {
		n := 0
		m.Range(func(_, _ []byte) bool {
			n++
			return true
		})
		if n != 1_000_000 {
			b.Fatalf("%d keys", n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/key")
}

// BenchmarkMapCollection measures what a million keys cost a garbage collection.
func BenchmarkMapCollection(b *testing.B) {
	m := filled(b, mapKeys(1_000_000))
	runtime.GC()
	b.ResetTimer()
	for range b.N {
		runtime.GC()
	}
	runtime.KeepAlive(m)
}
