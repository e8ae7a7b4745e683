package chp

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// cutContents returns what a cut shows, by each and by pieces.
func cutContents(t *testing.T, c *cut) map[string]string {
	t.Helper()
	all := map[string]string{}
	c.each(func(r record, hash uint64) bool {
		if _, twice := all[string(r.key())]; twice || hash != hashKey(r.key()) {
			t.Fatalf("%q is there twice, or has hash %x", r.key(), hash)
		}
		all[string(r.key())] = string(r.value())
		return true
	})
	n := 0
	c.pieces(func(p piece) bool {
		w := p.wire()
		for range p.n {
			if r := record(w); all[string(r.key())] != string(r.value()) {
				t.Fatalf("pieces have %q %q, each had %q", r.key(), r.value(), all[string(r.key())])
			}
			w = w[record(w).size():]
			n++
		}
		if len(w) != 0 {
			t.Fatal("a piece is longer than its records")
		}
		return true
	})
	if n != len(all) || n != c.len() {
		t.Fatalf("%d records in pieces, %d by each, length %d", n, len(all), c.len())
	}
	return all
}

func TestCutsStay(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 16))
	s := newStore(storeOptions{minSegment: 4096})
	model := map[string]string{}
	type taken struct {
		cut   *cut
		model map[string]string
	}
	var cuts []taken
	for i := range 60_000 {
		key := fmt.Sprint("/key/", rng.IntN(1+rng.IntN(2000)))
		value := ""
		if rng.IntN(5) > 0 {
			value = fmt.Sprintf("value %d %0*d", i, rng.IntN(50), 0)
		}
		s.put([]byte(key), int64(i+1), nil, nil, []byte(value))
		if model[key] = value; value == "" {
			delete(model, key)
		}
		if i%3000 == 0 {
			now := map[string]string{}
			for k, v := range model {
				now[k] = v
			}
			// Two at once: they share what they freeze.
			cuts = append(cuts, taken{s.cut(), now}, taken{s.cut(), now})
		}
		if len(cuts) > 6 {
			old := cuts[rng.IntN(len(cuts))]
			got := cutContents(t, old.cut)
			if len(got) != len(old.model) {
				t.Fatalf("%d keys, want %d", len(got), len(old.model))
			}
			for k, v := range old.model {
				if got[k] != v {
					t.Fatalf("%q is %q, want %q", k, got[k], v)
				}
			}
			cuts[0].cut.release()
			cuts = cuts[1:]
		}
	}
	for _, c := range cuts {
		c.cut.release()
	}
	s.log.each(func(seg *segment) {
		if n := seg.refs.Load(); n != 0 {
			t.Errorf("%d references are left", n)
		}
	})
	s.check(t, model)
}

func TestCutOfNothing(t *testing.T) {
	t.Parallel()
	s := newStore(storeOptions{})
	c := s.cut()
	s.put([]byte("k"), 1, nil, nil, []byte("v"))
	if got := cutContents(t, c); len(got) != 0 {
		t.Errorf("shows %v", got)
	}
	c.release()
	c = s.cut()
	stopped := 0
	c.each(func(record, uint64) bool { stopped++; return false })
	c.pieces(func(piece) bool { stopped++; return false })
	if stopped != 2 {
		t.Errorf("called %d times", stopped)
	}
	c.release()
}

// Neighbours in the log come as one piece.
func TestCutPiecesAreRuns(t *testing.T) {
	t.Parallel()
	s := newStore(storeOptions{})
	for i := range 100 {
		s.put(fmt.Appendf(nil, "/key/%d", i), int64(i+1), nil, nil, []byte("v"))
	}
	s.put([]byte("/key/50"), 101, nil, nil, []byte("v"))
	c := s.cut()
	defer c.release()
	var runs []int
	c.pieces(func(p piece) bool { runs = append(runs, p.n); return true })
	if fmt.Sprint(runs) != "[50 50]" {
		t.Errorf("runs of %v", runs)
	}
}

func BenchmarkCut(b *testing.B) {
	const keys = 100_000
	s := newStore(storeOptions{})
	for i := range keys {
		s.put(fmt.Appendf(nil, "/key/%d", i), int64(i+1), nil, nil, make([]byte, 32))
	}
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			s.cut().release()
		}
	})
	c := s.cut()
	defer c.release()
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			c.each(func(record, uint64) bool { return true })
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
	})
	b.Run("pieces", func(b *testing.B) {
		for b.Loop() {
			c.pieces(func(piece) bool { return true })
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
	})
}
