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

// TestMergeAppendedGivesWhatMergeGives: records of any order and size, with deletions and
// others merged in between, give the same map, whether they are merged at once or appended
// and merged later, and no table of the index is replaced twice.
func TestMergeAppendedGivesWhatMergeGives(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 3))
		atOnce, later := New(Options{MinSegment: 4096}), New(Options{MinSegment: 4096})
		keys := 1 + rng.IntN(20_000)
		model, since := map[string]string{}, map[string]int64{}
		var pieces []Piece
		for range 200 {
			var b batch
			for range rng.IntN(200) {
				key, value := fmt.Sprint("/", rng.IntN(keys)), make([]byte, 1+rng.IntN(100))
				if rng.IntN(200) == 0 {
					value = make([]byte, rng.IntN(64<<10))
				}
				if since[key] < 0 {
					continue // deleted: what comes afterwards is set, whatever its sequence
				}
				seq := 1 + rng.Int64N(1<<40)
				b.add(t, key, nil, nil, value)
				last := b.spans[len(b.spans)-1]
				kvmsg.Record(b.wire[last.Start:]).SetSeq(seq)
				switch {
				case len(value) == 0:
					b.wire, b.spans = b.wire[:last.Start], b.spans[:len(b.spans)-1]
				case seq > since[key]:
					model[key], since[key] = string(value), seq
				}
			}
			atOnce.Merge(b.wire, b.spans)
			if rng.IntN(4) == 0 {
				later.Merge(b.wire, b.spans)
			} else {
				pieces = later.Append(b.wire, b.spans, 0, pieces)
			}
			if rng.IntN(50) == 0 {
				later.MergeAppended(pieces)
				pieces = pieces[:0]
				key := fmt.Sprint("/", rng.IntN(keys))
				for _, s := range []*Map{atOnce, later} {
					s.Put([]byte(key), 1<<41, nil, nil, nil)
				}
				delete(model, key)
				since[key] = -1
			}
		}
		later.MergeAppended(pieces)
		for _, s := range []*Map{atOnce, later} {
			s.check(t, model)
		}
		if later.UnlinkedBytes() != 0 {
			t.Errorf("seed %d: %d bytes are not linked", seed, later.UnlinkedBytes())
		}
	}
}

// TestIndexGrowsAtOnce: when all records are there, no table of the index grows in steps.
func TestIndexGrowsAtOnce(t *testing.T) {
	t.Parallel()
	atOnce, later := New(Options{}), New(Options{})
	var pieces []Piece
	for n := range 100 {
		var b batch
		for i := range 1000 {
			b.add(t, fmt.Sprint("/", n, "/", i), nil, nil, []byte("v"))
		}
		atOnce.Merge(b.wire, b.spans)
		pieces = later.Append(b.wire, b.spans, 0, pieces)
	}
	later.MergeAppended(pieces)
	slots := func(s *Map) (n int) {
		for i := range s.tables {
			n += len(s.tables[i].Load().slots)
		}
		return n
	}
	if later.rebuilds > MaxShards+MaxShards/20 {
		t.Errorf("%d tables were replaced", later.rebuilds)
	}
	if a, b := slots(atOnce), slots(later); a != b {
		t.Errorf("the index has %d slots, and %d if it grows in steps", b, a)
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

// BenchmarkLoad fills a new store with records that arrive 1,000 at a time: each batch
// merged, or all when the last one has come.
func BenchmarkLoad(b *testing.B) {
	for _, keys := range []int{100_000, 1_000_000} {
		var all []batch
		for n := range keys {
			if n%1000 == 0 {
				all = append(all, batch{})
			}
			all[len(all)-1].add(b, fmt.Sprintf("/%08d", n), nil, nil, make([]byte, 32))
		}
		for _, link := range []string{"batch", "end"} {
			b.Run(fmt.Sprintf("keys=%d/link=%s", keys, link), func(b *testing.B) {
				for b.Loop() {
					s := New(Options{})
					var pieces []Piece
					for i := range all {
						if x := &all[i]; link == "batch" {
							s.Merge(x.wire, x.spans)
						} else {
							pieces = s.Append(x.wire, x.spans, 0, pieces)
						}
					}
					s.MergeAppended(pieces)
					if s.Stats().Keys != keys {
						b.Fatal(s.Stats())
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/record")
			})
		}
	}
}
