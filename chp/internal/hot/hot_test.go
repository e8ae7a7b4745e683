package hot

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// batch is a batch of updates in wire form.
type batch struct {
	wire  []byte
	spans []buf.Span
}

func (b *batch) add(key string, size int) {
	start := len(b.wire)
	b.wire = kvmsg.AppendRecord(b.wire, []byte(key), 1, nil, nil, make([]byte, size))
	b.spans = append(b.spans, buf.Span{Start: uint32(start), End: uint32(len(b.wire))})
}

// Keys with a large share are found among ever new ones, in batches of any size, with counts that
// are near the truth and never wrong by more than what is unsure.
func TestHotKeysAreFound(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 7, 1000} {
		s := New(0)
		s.random = rand.NewPCG(3, 4) // of a batch of 1,000 it takes 32 at random
		random := rand.New(rand.NewPCG(1, 2))
		want := map[string]uint64{}
		const total = 100_000
		for n := 0; n < total; {
			var b batch
			for range size {
				key := fmt.Sprint("/cold/", n)
				switch random.IntN(10) {
				case 0, 1, 2:
					key = "/hot/1"
				case 3:
					key = "/hot/2"
				}
				b.add(key, 10)
				want[key]++
				n++
			}
			s.Add(b.wire, b.spans)
		}
		top := Top(s.Keys(), 3)
		for i, key := range []string{"/hot/1", "/hot/2"} {
			got := top[i]
			if got.Key != key || float64(got.Updates-got.Unsure) > 1.2*float64(want[key]) || float64(got.Updates) < 0.8*float64(want[key]) {
				t.Errorf("batches of %d: %+v, want %s with %d", size, got, key, want[key])
			}
		}
		if n, bytes := s.Totals(); n < total || bytes < 10*total {
			t.Errorf("%d updates of %d bytes", n, bytes)
		}
		if len(s.Keys()) != Tracked || len(s.byHash) != Tracked {
			t.Errorf("%d keys, %d hashes", len(s.Keys()), len(s.byHash))
		}
	}
}

// Counting allocates nothing, whether keys are new or not.
func TestAllocNothing(t *testing.T) {
	s := New(0)
	n := 0
	var b batch
	if got := testenv.Allocs(2*Tracked, 2*Tracked, func() {
		b.wire, b.spans = b.wire[:0], b.spans[:0]
		n++
		b.wire = kvmsg.AppendRecord(b.wire, []byte{'/', byte(n), byte(n >> 8), byte(n >> 16)}, 1, nil, nil, []byte("v"))
		b.spans = append(b.spans, buf.Span{End: uint32(len(b.wire))})
		s.Add(b.wire, b.spans)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, size := range []int{1, 64, 1000} {
		b.Run(fmt.Sprint("batch=", size), func(b *testing.B) {
			var all [64]batch
			for i := range all {
				for j := range size {
					all[i].add(fmt.Sprintf("/key/%d/%d", i, j), 20)
				}
			}
			s := New(0)
			for i := 0; b.Loop(); i++ {
				s.Add(all[i%len(all)].wire, all[i%len(all)].spans)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/update")
		})
	}
}
