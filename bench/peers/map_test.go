package peers

import (
	"bytes"
	"flag"
	"fmt"
	"testing"
	"time"

	"clustermap/bench/internal/maps"
	"clustermap/internal/bench/figures"

	"github.com/puzpuzpuz/xsync/v4"
)

type xsyncMap struct{ m *xsync.Map[string, []byte] }

func (x xsyncMap) Get(key string, _ []byte) []byte {
	v, _ := x.m.Load(key)
	return v
}
func (x xsyncMap) Set(key string, value []byte) { x.m.Store(key, bytes.Clone(value)) }
func (x xsyncMap) Range(f func(value []byte)) {
	x.m.Range(func(_ string, value []byte) bool {
		f(value)
		return true
	})
}

var mapSizes = maps.Sizes{10_000, 1_000_000}

func init() {
	flag.Var(&mapSizes, "map.keys", "numbers of keys of BenchmarkMap; 10000000 takes several GB")
}

// BenchmarkMap runs chp.Map and another map in turns on the same keys of 11 bytes,
// with values of 32. Keys are got in one order and set in another, so that no map profits
// from entries that lie in memory in the order of the queries. On
// get, ours copies the value out and the others return the slice they hold; it is
// compared with the right value of the key, since a caller of Get reads the value. On set
// all take a copy. A range goes through the whole map, as for a snapshot.
//
// ns/op is that of both together. ours-ns and peer-ns are the medians of the turns,
// and ratio is the median of peer/ours: above 1, ours is faster. ours-B/key and peer-B/key
// are the growth of the heap.
func BenchmarkMap(b *testing.B) {
	for _, size := range mapSizes {
		load := maps.NewLoad(size)
		filled := func(kind maps.Kind) (m maps.Map, perKey float64) {
			before := maps.Heap()
			m = kind.New()
			maps.Fill(m, size)
			return m, float64(maps.Heap()-before) / float64(size)
		}
		peers := append(maps.Kinds[1:len(maps.Kinds):len(maps.Kinds)], maps.Kind{
			Name: "xsync.Map", New: func() maps.Map { return xsyncMap{xsync.NewMap[string, []byte]()} },
		})
		for _, peer := range peers {
			// Both new: a set leaves our records in the order of the sets.
			us, ourBytes := filled(maps.Kinds[0])
			them, theirBytes := filled(peer)
			work := func(b *testing.B, m maps.Map, op string, goroutines int) func(n int) {
				return func(n int) {
					if err := load.Run(m, op, n, goroutines); err != nil {
						b.Fatal(err)
					}
				}
			}
			name := fmt.Sprintf("keys=%d/peer=%s", size, peer.Name)
			for _, op := range []string{"get", "set"} {
				for _, goroutines := range maps.Goroutines() {
					b.Run(fmt.Sprintf("%s/op=%s/goroutines=%d", name, op, goroutines), func(b *testing.B) {
						turns(b, work(b, us, op, goroutines), work(b, them, op, goroutines))
					})
				}
			}
			b.Run(name+"/op=range/goroutines=1", func(b *testing.B) {
				all := func(m maps.Map) func(n int) {
					return func(n int) {
						for range n {
							if err := maps.Check(m, size); err != nil {
								b.Fatal(err)
							}
						}
					}
				}
				turns(b, all(us), all(them))
				b.ReportMetric(ourBytes, "ours-B/key")
				b.ReportMetric(theirBytes, "peer-B/key")
			})
		}
	}
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
	b.ReportMetric(figures.Median(our), "ours-ns")
	b.ReportMetric(figures.Median(their), "peer-ns")
	b.ReportMetric(figures.Median(ratio), "ratio")
}
