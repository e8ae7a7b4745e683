package store

import (
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/chptest"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// One writer sets, deletes and grows; readers check that each value belongs to the key
// they asked for and that values never go back; cuts are compared with a model as it was
// at the cut; pieces that were retained must stay as they were. Segments are small, so
// they are compacted and recycled all the time.
func TestStoreConcurrently(t *testing.T) {
	t.Parallel()
	const keys = 3000
	rounds := 1500
	if testing.Short() || testenv.RaceDetector {
		rounds = 300
	}
	s := New(Options{MinSegment: 4096})
	var stop atomic.Bool
	var wg sync.WaitGroup
	fail := func(err error) {
		t.Error(err)
		stop.Store(true)
	}

	for i := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			newest := map[string]int64{}
			var dst []byte
			for !stop.Load() {
				key := fmt.Sprintf("/key/%d", rng.IntN(keys))
				check := func(value []byte, stamped int64) {
					seq, err := chptest.CheckValue([]byte(key), value)
					if err == nil && (seq != stamped || seq < newest[key]) {
						err = fmt.Errorf("%q: value is #%d, record #%d, after #%d", key, seq, stamped, newest[key])
					}
					if newest[key] = seq; err != nil {
						fail(err)
					}
				}
				switch i {
				case 0, 1:
					s.View([]byte(key), func(r kvmsg.Record) {
						if string(r.Key()) != key {
							fail(fmt.Errorf("asked for %q, got %q", key, r.Key()))
						}
						if rng.IntN(8) == 0 {
							// Longer than a reader may: the writer must go on,
							// and must not take away the record that this one reads.
							time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
						}
						check(r.Value(), r.Seq())
					})
				default:
					var seq int64
					var ok bool
					if dst, seq, ok = s.Get([]byte(key), dst[:0]); ok {
						check(dst, seq)
					}
				}
			}
		})
	}

	type cutAndModel struct {
		cut   *Cut
		model map[string]int64
	}
	cuts := make(chan cutAndModel, 3)
	wg.Go(func() {
		for c := range cuts {
			if c.cut.Len() != len(c.model) {
				fail(fmt.Errorf("cut has %d keys, model %d", c.cut.Len(), len(c.model)))
			}
			seen := 0
			c.cut.each(func(r kvmsg.Record, hash uint64) bool {
				seen++
				seq, err := chptest.CheckValue(r.Key(), r.Value())
				if err == nil && (c.model[string(r.Key())] != seq || seq != r.Seq() || hash != kvmsg.HashKey(r.Key())) {
					err = fmt.Errorf("cut has %q #%d, model #%d", r.Key(), seq, c.model[string(r.Key())])
				}
				if err != nil {
					fail(err)
				}
				return err == nil
			})
			if seen != len(c.model) && !stop.Load() {
				fail(fmt.Errorf("cut shows %d keys, model has %d", seen, len(c.model)))
			}
			n := 0
			c.cut.Pieces(func(p Piece) bool {
				for w := p.Wire(); len(w) > 0; w = w[kvmsg.Record(w).Size():] {
					n++
				}
				seen -= p.Records
				return true
			})
			if seen != 0 || n != len(c.model) && !stop.Load() {
				fail(fmt.Errorf("pieces hold %d records, %d more or less than they say", n, seen))
			}
			c.cut.Release()
		}
	})

	type lent struct {
		Piece
		sum uint32
	}
	borrowed := make(chan lent, 100)
	wg.Go(func() {
		for l := range borrowed {
			if crc32.ChecksumIEEE(l.Wire()) != l.sum {
				fail(fmt.Errorf("bytes changed while they were borrowed"))
			}
			l.Segment.Release()
		}
	})

	rng := rand.New(rand.NewPCG(1, 6))
	model := map[string]int64{}
	seq := int64(1)
	var b batch
	var out []Piece
	live := keys / 10
	for round := 0; (round < rounds || s.log.recycled == 0) && !stop.Load(); round++ {
		if round%300 == 299 {
			live = 1 + rng.IntN(keys) // the map grows and shrinks
		}
		b.reset()
		start := seq
		for range 1 + rng.IntN(200) {
			n := rng.IntN(live)
			if rng.IntN(4) == 0 {
				n = rng.IntN(keys)
			}
			key := fmt.Sprintf("/key/%d", n)
			if n >= live || rng.IntN(20) == 0 {
				b.add(t, key, nil, nil, nil)
				delete(model, key)
			} else {
				b.add(t, key, nil, nil, chptest.Value(key, seq, rng.IntN(60)))
				model[key] = seq
			}
			seq++
		}
		out = s.Apply(b.wire, b.spans, start, out[:0])
		for _, p := range out {
			p.Segment.Retain()
			select {
			case borrowed <- lent{p, crc32.ChecksumIEEE(p.Wire())}:
			default:
				p.Segment.Release()
			}
		}
		if round%7 == 0 {
			key := fmt.Sprintf("/key/%d", rng.IntN(live))
			s.Put([]byte(key), seq, nil, nil, chptest.Value(key, seq, 10))
			model[key] = seq
			seq++
		}
		if round%20 == 0 {
			select {
			case cuts <- cutAndModel{s.Cut(), maps.Clone(model)}:
			default:
			}
		}
	}
	stop.Store(true)
	close(cuts)
	close(borrowed)
	wg.Wait()
	if s.log.victim.moved == 0 {
		t.Error("compaction never ran")
	}
	final := map[string]string{}
	for key, seq := range model {
		value, _, _ := s.Get([]byte(key), nil)
		if got, err := chptest.CheckValue([]byte(key), value); err != nil || got != seq {
			t.Fatalf("%q is #%d, %v, want #%d", key, got, err, seq)
		}
		final[key] = string(value)
	}
	s.check(t, final)
}
