// Package bench measures the layers of clustermap as a user would use them.
//
//	go test -bench . ./bench
//
// Each benchmark checks the number, order and content of the updates that arrived. Names
// have the form key=value, so that benchstat can sort and compare them. A rate depends on
// the machine and its load, so compare ratios of one run. The module bench/peers runs
// other libraries and systems in turn with this one.
package bench

import (
	"flag"
	"fmt"
	"runtime"
	"testing"

	"clustermap/bench/internal/maps"
)

var mapSizes = maps.Sizes{10_000, 1_000_000}

func init() {
	flag.Var(&mapSizes, "map.keys", "numbers of keys of BenchmarkMap and BenchmarkReplay; 10000000 takes several GB")
}

// BenchmarkMap measures chp.Map beside maps of the standard library, with keys of 11
// bytes and values of 32: a value got, set, nine got to one set, and the whole map gone
// through, as for a snapshot; with one goroutine and more of them. chp.Map copies the
// value that it returns, and the others return the slice that they hold.
//
// B/key is the growth of the heap for each key. op=collection is a garbage collection
// while there is such a map.
func BenchmarkMap(b *testing.B) {
	for _, keys := range mapSizes {
		var load *maps.Load
		for _, kind := range maps.Kinds {
			b.Run(fmt.Sprintf("keys=%d/map=%s", keys, kind.Name), func(b *testing.B) {
				before := maps.Heap()
				m := kind.New()
				maps.Fill(m, keys)
				perKey := float64(maps.Heap()-before) / float64(keys)
				b.Run("op=range/goroutines=1", func(b *testing.B) {
					for b.Loop() {
						if err := maps.Check(m, keys); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(keys), "ns/key")
					b.ReportMetric(perKey, "B/key")
				})
				b.Run("op=collection/goroutines=1", func(b *testing.B) {
					for b.Loop() {
						runtime.GC()
					}
				})
				if load == nil {
					load = maps.NewLoad(keys)
				}
				for _, op := range maps.Ops {
					for _, goroutines := range maps.Goroutines() {
						b.Run(fmt.Sprintf("op=%s/goroutines=%d", op, goroutines), func(b *testing.B) {
							b.ReportAllocs()
							if err := load.Run(m, op, b.N, goroutines); err != nil {
								b.Fatal(err)
							}
						})
					}
				}
				runtime.KeepAlive(m)
			})
		}
	}
}
