package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/internal/kvmsg"
)

// cutContents returns the content of a cut, by each and by pieces.
func cutContents(t *testing.T, c *Cut) map[string]string {
	t.Helper()
	all := map[string]string{}
	c.each(func(r kvmsg.Record, hash uint64) bool {
		if _, twice := all[string(r.Key())]; twice || hash != kvmsg.HashKey(r.Key()) {
			t.Fatalf("%q is there twice, or has hash %x", r.Key(), hash)
		}
		all[string(r.Key())] = string(r.Value())
		return true
	})
	n := 0
	c.Pieces(func(p Piece) bool {
		w := p.Wire()
		for range p.Records {
			if r := kvmsg.Record(w); all[string(r.Key())] != string(r.Value()) {
				t.Fatalf("pieces have %q %q, each had %q", r.Key(), r.Value(), all[string(r.Key())])
			}
			w = w[kvmsg.Record(w).Size():]
			n++
		}
		if len(w) != 0 {
			t.Fatal("a piece is longer than its records")
		}
		return true
	})
	if n != len(all) || n != c.Len() {
		t.Fatalf("%d records in pieces, %d by each, length %d", n, len(all), c.Len())
	}
	return all
}

func TestCutsStay(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 16))
	s := New(Options{MinSegment: 4096})
	model := map[string]string{}
	type taken struct {
		cut   *Cut
		model map[string]string
	}
	var cuts []taken
	for i := range 60_000 {
		key := fmt.Sprint("/key/", rng.IntN(1+rng.IntN(2000)))
		value := ""
		if rng.IntN(5) > 0 {
			value = fmt.Sprintf("value %d %0*d", i, rng.IntN(50), 0)
		}
		s.Put([]byte(key), int64(i+1), nil, nil, []byte(value))
		if model[key] = value; value == "" {
			delete(model, key)
		}
		if i%3000 == 0 {
			now := map[string]string{}
			for k, v := range model {
				now[k] = v
			}
			// Two at once: they share liveness maps.
			cuts = append(cuts, taken{s.Cut(), now}, taken{s.Cut(), now})
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
			cuts[0].cut.Release()
			cuts = cuts[1:]
		}
	}
	for _, c := range cuts {
		c.cut.Release()
	}
	s.log.each(func(seg *Segment) {
		if n := seg.refs.Load(); n != 0 {
			t.Errorf("%d references are left", n)
		}
	})
	s.check(t, model)
}

func TestCutOfNothing(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	c := s.Cut()
	s.Put([]byte("k"), 1, nil, nil, []byte("v"))
	if got := cutContents(t, c); len(got) != 0 {
		t.Errorf("shows %v", got)
	}
	c.Release()
	c = s.Cut()
	stopped := 0
	c.each(func(kvmsg.Record, uint64) bool { stopped++; return false })
	c.Pieces(func(Piece) bool { stopped++; return false })
	if stopped != 2 {
		t.Errorf("called %d times", stopped)
	}
	c.Release()
}

// Neighbours in the log come as one piece.
func TestCutPiecesAreRuns(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	for i := range 100 {
		s.Put(fmt.Appendf(nil, "/key/%d", i), int64(i+1), nil, nil, []byte("v"))
	}
	s.Put([]byte("/key/50"), 101, nil, nil, []byte("v"))
	c := s.Cut()
	defer c.Release()
	var runs []int
	c.Pieces(func(p Piece) bool { runs = append(runs, p.Records); return true })
	if fmt.Sprint(runs) != "[50 50]" {
		t.Errorf("runs of %v", runs)
	}
}

func BenchmarkCut(b *testing.B) {
	const keys = 100_000
	s := New(Options{})
	for i := range keys {
		s.Put(fmt.Appendf(nil, "/key/%d", i), int64(i+1), nil, nil, make([]byte, 32))
	}
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			s.Cut().Release()
		}
	})
	c := s.Cut()
	defer c.Release()
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			c.each(func(kvmsg.Record, uint64) bool { return true })
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
	})
	b.Run("pieces", func(b *testing.B) {
		for b.Loop() {
			c.Pieces(func(Piece) bool { return true })
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
	})
}

// each calls f for every record and the hash of its key until f returns false.
func (c *Cut) each(f func(r kvmsg.Record, hash uint64) bool) {
	c.Records(func(r kvmsg.Record) bool { return f(r, kvmsg.HashKey(r.Key())) })
}
