package pair

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/chp/internal/state"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/testenv"
)

// tailPieces applies a batch of the given number of updates, and returns its pieces.
func tailPieces(t testing.TB, m *store.Map, first int64, updates, value int) (state.Head, []store.Piece) {
	t.Helper()
	var wire []byte
	for i := range updates {
		wire = kvmsg.AppendRecord(wire, fmt.Appendf(nil, "/%d", i), 0, nil, nil, make([]byte, value))
	}
	spans, ok := kvmsg.SpansOf(wire, nil)
	if !ok {
		t.Fatal("not records")
	}
	return state.Head{Reign: 1, First: first, Count: uint32(updates)}, m.Apply(wire, spans, first, nil)
}

// TestTail: a read from a position returns the updates added from there on; the updates
// that a follower needs are kept while it is sent the map, and no longer.
func TestTail(t *testing.T) {
	t.Parallel()
	m := store.New(store.Options{})
	q := tail{size: 20_000}
	random := rand.New(rand.NewPCG(1, 2))
	next := int64(1)
	var position uint64 // of the follower
	var part Part
	want := int64(1) // the sequence at position
	held := false
	for round := range 5_000 {
		h, pieces := tailPieces(t, m, next, 1+random.IntN(20), random.IntN(200))
		next = h.Last() + 1
		q.add(h, pieces, 0)
		if q.bytes > max(q.size, q.most) && q.end()-q.begin > 1 {
			t.Fatalf("%d bytes of %d, %d", q.bytes, q.size, q.most)
		}
		switch n := random.IntN(100); {
		case n == 0:
			held, position, want = true, q.end(), next
			q.keepFrom(position, 500_000)
		case n < 10:
			lag := q.lag(position)
			ok := q.read(position, random.IntN(30_000), &part)
			if !ok {
				if held && lag < 400_000 {
					t.Fatalf("round %d: %d bytes are not kept", round, lag)
				}
				held, position, want = false, q.end(), next
				continue
			}
			bytes := 0
			pieces := part.pieces
			for _, b := range part.batches {
				if b.First != want {
					t.Fatalf("round %d: batch %d, want %d", round, b.First, want)
				}
				for _, p := range pieces[:b.pieces] {
					if seq := kvmsg.Record(p.Wire()).Seq(); seq != want {
						t.Fatalf("round %d: update %d, want %d", round, seq, want)
					}
					want += int64(p.Records)
					p.Segment.Release()
				}
				pieces = pieces[b.pieces:]
				if want != b.Last()+1 {
					t.Fatalf("round %d: updates up to %d, want %d", round, want-1, b.Last())
				}
				bytes += b.bytes
			}
			position += uint64(len(part.batches))
			if got := q.lag(position); got != lag-bytes {
				t.Fatalf("round %d: lag %d, want %d", round, got, lag-bytes)
			}
			if held {
				q.caughtUp(position)
				held = q.most > 0
			}
		}
	}
	q.clear()
	if q.bytes != 0 || q.read(position, 1, &part) {
		t.Error("there is something in an empty tail")
	}
}

// TestTailAllocs: a batch costs the tail no allocation.
func TestTailAllocs(t *testing.T) {
	m := store.New(store.Options{})
	q := tail{size: 1 << 20}
	h, pieces := tailPieces(t, m, 1, 10, 10)
	add := func() { q.add(h, pieces, 0) }
	for range 10_000 {
		add()
	}
	if n := testenv.Allocs(0, 10_000, add); n > 0 {
		t.Errorf("%.2f allocations a batch", n)
	}
	var part Part
	read := func() {
		if !q.read(q.end()-100, portion, &part) || len(part.batches) != 100 {
			t.Fatal("the tail has no hundred batches")
		}
		for _, p := range part.pieces {
			p.Segment.Release()
		}
	}
	read()
	if n := testenv.Allocs(0, 100, read); n > 0 {
		t.Errorf("%.2f allocations a read", n)
	}
}
