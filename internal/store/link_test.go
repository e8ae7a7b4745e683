package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// appended is a batch that is in the log and not linked, and what it changes.
type appended struct {
	pieces  []Piece
	spans   []buf.Span
	changes []change
}

type change struct{ key, value string }

// TestLinkAgainstModel appends batches, and links them later, in order, or drops them. The
// map is always that of the linked batches, whatever is overwritten, compacted or cut
// meanwhile, and the pieces have the records with their sequences.
func TestLinkAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			s := New(Options{MinSegment: 4096})
			model := map[string]string{}
			keys := 1 + rng.IntN(1000)
			seq := int64(1)
			var queue []appended
			var b batch
			for round := range 1500 {
				switch n := rng.IntN(20); {
				case n == 0 && len(queue) > 0 && rng.IntN(4) == 0: // drop all
					for _, q := range queue {
						s.Truncate(q.pieces)
					}
					queue = queue[:0]
				case n < 9 && len(queue) > 0 || len(queue) > 30:
					q := queue[0]
					queue = queue[1:]
					s.Link(q.pieces, q.spans)
					for _, c := range q.changes {
						if c.value == "" {
							delete(model, c.key)
						} else {
							model[c.key] = c.value
						}
					}
				case n == 10:
					s.Tidy(64 << 10)
				case n == 11:
					c := s.Cut()
					got := 0
					c.Records(func(r kvmsg.Record) bool {
						if model[string(r.Key())] != string(r.Value()) {
							t.Fatalf("round %d: a cut has %q", round, r.Key())
						}
						got++
						return true
					})
					if got != len(model) {
						t.Fatalf("round %d: a cut has %d of %d keys", round, got, len(model))
					}
					c.Release()
				default:
					b.reset()
					q := appended{}
					for range 1 + rng.IntN(100) {
						key := fmt.Sprint("/", rng.IntN(keys))
						size := rng.IntN(200)
						if rng.IntN(300) == 0 {
							size = rng.IntN(maxSegment)
						}
						value := ""
						if rng.IntN(5) > 0 {
							value = fmt.Sprintf("%0*d", 1+size, seq)
						}
						b.add(t, key, nil, nil, []byte(value))
						q.changes = append(q.changes, change{key, value})
					}
					if rng.IntN(3) == 0 { // as a batch some of whose updates were refused
						i := rng.IntN(len(b.spans))
						b.spans = append(b.spans[:i], b.spans[i+1:]...)
						q.changes = append(q.changes[:i], q.changes[i+1:]...)
					}
					q.pieces = s.Append(b.wire, b.spans, seq, nil)
					q.spans = append(q.spans, b.spans...)
					n := 0
					for _, p := range q.pieces {
						p.Segment.Retain()
						defer p.Segment.Release()
						spans, ok := kvmsg.SpansOf(p.Wire(), nil)
						if !ok || len(spans) != p.Records {
							t.Fatalf("a piece has %d of %d records", len(spans), p.Records)
						}
						for _, span := range spans {
							if r := kvmsg.Record(p.Wire()[span.Start:]); r.Seq() != seq || string(r.Key()) != q.changes[n].key {
								t.Fatalf("record %q #%d, want %q #%d", r.Key(), r.Seq(), q.changes[n].key, seq)
							}
							seq++
							n++
						}
					}
					queue = append(queue, q)
				}
				if round%50 == 0 {
					s.check(t, model)
				}
			}
			for _, q := range queue {
				s.Truncate(q.pieces)
			}
			s.check(t, model)
		})
	}
}

// TestDroppedRecordsReturnTheirMemory: a log does not grow by batches that are never linked.
func TestDroppedRecordsReturnTheirMemory(t *testing.T) {
	s := New(Options{})
	var b batch
	for i := range 64 {
		b.add(t, fmt.Sprint("/", i), nil, nil, make([]byte, 100))
	}
	var pieces []Piece
	drop := func() {
		pieces = s.Append(b.wire, b.spans, 1, pieces[:0])
		s.Truncate(pieces)
	}
	for range 1000 {
		drop()
	}
	before := s.LogBytes()
	if n := testenv.Allocs(0, 10_000, drop); n != 0 {
		t.Errorf("%v allocations for a batch", n)
	}
	if after := s.LogBytes(); after > 2*before+maxSegment {
		t.Errorf("the log grew from %d to %d bytes", before, after)
	}
	link := func() {
		pieces = s.Append(b.wire, b.spans, 1, pieces[:0])
		s.Link(pieces, b.spans)
	}
	link()
	if n := testenv.Allocs(0, 10_000, link); n != 0 {
		t.Errorf("%v allocations to append and link a batch", n)
	}
}

// TestRecordsThatAreAboutToBeReplacedAreNotMoved: what waits to be linked is no reason to
// compact, since the records that it replaces die without.
func TestRecordsThatAreAboutToBeReplacedAreNotMoved(t *testing.T) {
	const keys, behind, size = 10_000, 200, 100
	rng := rand.New(rand.NewPCG(1, 2))
	s := New(Options{})
	var queue []appended
	appendedBytes := 0
	for seq := int64(1); seq < 1_000_000; seq += size {
		var b batch
		for range size {
			b.add(t, fmt.Sprintf("/%08d", rng.IntN(keys)), nil, nil, make([]byte, 32))
		}
		appendedBytes += len(b.wire)
		queue = append(queue, appended{pieces: s.Append(b.wire, b.spans, seq, nil), spans: b.spans})
		if len(queue) > behind {
			s.Link(queue[0].pieces, queue[0].spans)
			queue = queue[1:]
		}
	}
	if moved := s.Stats().Moved; moved > uint64(appendedBytes/10) {
		t.Errorf("compaction moved %d of %d bytes", moved, appendedBytes)
	}
}

// BenchmarkAppendLink compares Apply with Append and Link, in turn and with 256 batches in
// between, which is colder.
func BenchmarkAppendLink(b *testing.B) {
	const size = 100
	for _, keys := range []int{10_000, 1_000_000} {
		for _, behind := range []int{-1, 0, 256} {
			b.Run(fmt.Sprintf("keys=%d/behind=%d", keys, behind), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				s := New(Options{})
				var all [64]batch
				for n := range all {
					for range size {
						all[n].add(b, fmt.Sprintf("/%08d", rng.IntN(keys)), nil, nil, make([]byte, 32))
					}
				}
				var queue [][]Piece
				seq := int64(1)
				i := 0
				for b.Loop() {
					x := &all[i%len(all)]
					if behind < 0 {
						s.Apply(x.wire, x.spans, seq, nil)
					} else {
						queue = append(queue, s.Append(x.wire, x.spans, seq, nil))
						if len(queue) > behind {
							s.Link(queue[0], all[(i-behind+len(all)*8)%len(all)].spans)
							queue = queue[1:]
						}
					}
					seq += size
					i++
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(i*size), "ns/update")
			})
		}
	}
}
