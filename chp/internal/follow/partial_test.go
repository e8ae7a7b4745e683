package follow

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"clustermap/chp/internal/txn"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// transactions returns updates of transactions of some sizes, which follow each other from sequence 1 on.
func transactions(t testing.TB, size int, sizes ...int) (wire []byte, spans []buf.Span) {
	t.Helper()
	seq := int64(0)
	for _, n := range sizes {
		for more := n - 1; more >= 0; more-- {
			seq++
			wire = kvmsg.AppendRecord(wire, []byte("key"), seq, nil, txn.AppendMore(nil, more), make([]byte, size))
		}
	}
	spans, ok := kvmsg.SpansOf(wire, nil)
	if !ok {
		t.Fatal("malformed")
	}
	return wire, spans
}

// However transactions are cut into batches, each is passed on as a whole, and nothing is left out.
func TestPartialPassesOnWholeTransactions(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		var sizes []int
		whole := map[int64]bool{0: true} // the sequences of the last updates
		last := int64(0)
		for range 1 + r.IntN(20) {
			n := 1 + r.IntN(2)*r.IntN(9)
			sizes = append(sizes, n)
			last += int64(n)
			whole[last] = true
		}
		wire, spans := transactions(t, 5, sizes...)
		var p partial
		var got []int64
		for len(spans) > 0 {
			n := min(r.IntN(6), len(spans))
			known := int64(math.MinInt64)
			if n > 0 {
				known = kvmsg.Record(wire[spans[n-1].Start:]).Seq()
			}
			some, its := p.whole(wire, spans[:n:n], known)
			for _, span := range its {
				got = append(got, kvmsg.Record(some[span.Start:span.End]).Seq())
			}
			if at := int64(len(got)); !whole[at] || p.before(max(known, at)) != at {
				t.Fatalf("transactions of %d updates: %d are passed on, and all before %d is complete", sizes, at, p.before(max(known, at)))
			}
			spans = spans[n:]
		}
		if !slices.IsSorted(got) || len(got) != int(last) || p.pending() {
			t.Fatalf("transactions of %d updates: got %d", sizes, got)
		}
	}
}

// A transaction that arrives in many batches costs no more for each than what the batch has.
func BenchmarkPartial(b *testing.B) {
	wire, spans := transactions(b, 1<<10, txn.MaxUpdates)
	for b.Loop() {
		var p partial
		for i := range spans {
			p.whole(wire, spans[i:i+1:i+1], 0)
		}
	}
}
