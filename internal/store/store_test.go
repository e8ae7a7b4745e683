package store

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// batch collects messages as a reader goroutine would: bytes and spans.
type batch struct {
	wire  []byte
	spans []buf.Span
}

func (b *batch) reset() { b.wire, b.spans = b.wire[:0], b.spans[:0] }

func (b *batch) add(t testing.TB, key string, uuid, props, value []byte) {
	start := len(b.wire)
	b.wire = kvmsg.AppendRecord(b.wire, []byte(key), 0, uuid, props, value)
	size, tag, k, err := kvmsg.Inspect(b.wire[start:], kvmsg.FromClient, 0)
	if err != nil || k != kvmsg.KindUpdate {
		t.Fatalf("inspect %q: %v, %v", key, k, err)
	}
	b.wire = b.wire[:start+size]
	b.spans = append(b.spans, buf.Span{Start: uint32(start), End: uint32(start + size), Tag: tag})
}

// check verifies the invariants that store.go lists, and that s holds model.
func (s *Map) check(t testing.TB, model map[string]string) {
	t.Helper()
	if s.count != len(model) || s.Len() != len(model) {
		t.Fatalf("%d keys, %d for readers, want %d", s.count, s.Len(), len(model))
	}
	for key, want := range model {
		got, _, ok := s.Get([]byte(key), nil)
		if !ok || string(got) != want {
			t.Fatalf("get %q = %q, %v, want %q", key, got, ok, want)
		}
	}
	keys, bytes := 0, 0
	s.log.each(func(seg *Segment) {
		n, size := 0, 0
		for at := uint32(0); at < seg.used; {
			r := seg.record(at)
			v, _, _ := s.search(kvmsg.HashKey(r.Key()), r.Key())
			pointed := v != 0 && slotLocation(v) == locate(seg, at)
			if pointed != seg.marked(at) {
				t.Fatalf("record %q at %d: index points to it: %v, mark: %v", r.Key(), at, pointed, seg.marked(at))
			}
			if pointed {
				n++
				size += r.Size()
			}
			at += uint32(r.Size())
		}
		if n != int(seg.live) || size != seg.bytes {
			t.Fatalf("segment has %d live of %d bytes, counts %d of %d", n, size, seg.live, seg.bytes)
		}
		keys += n
		bytes += size
	})
	if keys != s.count || bytes != s.log.live {
		t.Fatalf("%d live records of %d bytes, store counts %d of %d", keys, bytes, s.count, s.log.live)
	}
}

func TestStoreAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			s := New(Options{MinSegment: 4096})
			model := map[string]string{}
			keys := 1 + rng.IntN(2000)
			seq := int64(1)
			var b batch
			var out []Piece
			for round := range 300 {
				b.reset()
				start := seq
				for range 1 + rng.IntN(200) {
					key := fmt.Sprintf("/key/%d", rng.IntN(keys))
					value := make([]byte, rng.IntN(100))
					if rng.IntN(200) == 0 {
						value = make([]byte, rng.IntN(20000))
					}
					if rng.IntN(3000) == 0 {
						value = make([]byte, ownSegment+rng.IntN(maxSegment))
					}
					if rng.IntN(4) == 0 {
						value = nil
					}
					for i := range value {
						value[i] = byte(seq)
					}
					if rng.IntN(50) == 0 {
						// A gap in the bytes, as a message leaves that was refused.
						b.wire = append(b.wire, make([]byte, 1+rng.IntN(30))...)
					}
					b.add(t, key, nil, nil, value)
					if seq++; len(value) == 0 {
						delete(model, key)
					} else {
						model[key] = string(value)
					}
				}
				out = s.Apply(b.wire, b.spans, start, out[:0])
				i := 0
				for _, p := range out {
					w := p.Wire()
					for range p.Records {
						r := kvmsg.Record(w)
						want := kvmsg.Record(b.wire[b.spans[i].Start:b.spans[i].End])
						rest := 2 + len(want.Key()) + 2 + 8 // behind key and sequence
						if r.Seq() != start+int64(i) || string(r.Key()) != string(want.Key()) || string(r[rest:r.Size()]) != string(want[rest:]) {
							t.Fatalf("piece has %q #%d, want %q #%d", r.Key(), r.Seq(), want.Key(), start+int64(i))
						}
						w = w[r.Size():]
						i++
					}
					if len(w) != 0 {
						t.Fatal("piece is longer than its records")
					}
				}
				if i != len(b.spans) {
					t.Fatalf("pieces hold %d messages, want %d", i, len(b.spans))
				}
				if round%10 == 0 {
					s.check(t, model)
				}
			}
			s.check(t, model)
		})
	}
}

func benchBatches(b *testing.B, keys, batches, per int, sequential bool) []batch {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]batch, batches)
	n := 0
	for i := range out {
		for range per {
			k := rng.IntN(keys)
			if sequential {
				k = n % keys
			}
			n++
			value := make([]byte, 80-kvmsg.MinRecord-9-16)
			binary.BigEndian.PutUint64(value, uint64(n))
			out[i].add(b, fmt.Sprintf("/k/%07d", k), make([]byte, 16), nil, value)
		}
	}
	return out
}

func BenchmarkStoreApply(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		for _, order := range []string{"random", "sequential"} {
			b.Run(fmt.Sprintf("keys=%d/%s", keys, order), func(b *testing.B) {
				const per = 3000
				batches := benchBatches(b, keys, max(64, 2*keys/per), per, order == "sequential")
				s := New(Options{})
				var out []Piece
				for i := range batches {
					out = s.Apply(batches[i].wire, batches[i].spans, 1, out[:0])
				}
				b.ReportAllocs()
				b.ResetTimer()
				i := 0
				for done := 0; done < b.N; done += per {
					out = s.Apply(batches[i].wire, batches[i].spans, int64(done+1), out[:0])
					if i++; i == len(batches) {
						i = 0
					}
				}
				b.SetBytes(80)
				st := s.Stats()
				b.ReportMetric(float64(st.LogBytes)/float64(st.LiveBytes), "log/live")
				b.ReportMetric(float64(st.Moved)/80/float64(b.N), "moved/op")
			})
		}
	}
}

func BenchmarkStoreGet(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			batches := benchBatches(b, keys, keys/1000, 1000, true)
			s := New(Options{})
			for i := range batches {
				s.Apply(batches[i].wire, batches[i].spans, 1, nil)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			names := make([][]byte, 1<<16)
			for i := range names {
				names[i] = fmt.Appendf(nil, "/k/%07d", rng.IntN(keys))
			}
			b.ReportAllocs()
			b.ResetTimer()
			var dst []byte
			for i := range b.N {
				dst, _, _ = s.Get(names[i&(len(names)-1)], dst[:0])
			}
		})
	}
}

// TestMerge: of the records of a key that come in any order the one with the highest
// sequence stays, until a deletion with a higher one.
func TestMerge(t *testing.T) {
	t.Parallel()
	type newest struct {
		seq   int64
		value string
	}
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 2))
			s := New(Options{MinSegment: 4096, Shards: 1 << rng.IntN(9)})
			held := map[string]newest{}
			keys := 1 + rng.IntN(3000)
			var b batch
			for round := range 200 {
				b.reset()
				for range 1 + rng.IntN(200) {
					key := fmt.Sprintf("/key/%d", rng.IntN(keys))
					value := make([]byte, 1+rng.IntN(100))
					if rng.IntN(3000) == 0 {
						value = make([]byte, ownSegment+rng.IntN(maxSegment))
					}
					if rng.IntN(4) == 0 {
						value = nil
					}
					seq := 1 + rng.Int64N(1000)
					for i := range value {
						value[i] = byte(seq)
					}
					b.add(t, key, nil, nil, value)
					kvmsg.Record(b.wire[b.spans[len(b.spans)-1].Start:]).SetSeq(seq)
					if old, ok := held[key]; ok && old.seq >= seq {
						continue
					}
					if len(value) == 0 {
						delete(held, key)
					} else {
						held[key] = newest{seq, string(value)}
					}
				}
				s.Merge(b.wire, b.spans)
				if round%20 == 19 {
					model := map[string]string{}
					for key, n := range held {
						model[key] = n.value
					}
					s.check(t, model)
					s.index.checkCounts(t)
				}
			}
		})
	}
}
