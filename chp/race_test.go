package chp

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
)

// One writer sets, deletes and grows; readers check that what they get belongs to
// the key they asked for and never goes back; cuts are compared with a model as it
// was at the cut; borrowers check that the pieces they retained stay as they were.
// Segments are small, so they are compacted and recycled all the time.
func TestStoreConcurrently(t *testing.T) {
	t.Parallel()
	const keys = 3000
	rounds := 1500
	if testing.Short() || chptest.RaceDetector {
		rounds = 300
	}
	s := newStore(storeOptions{minSegment: 4096})
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
					s.view([]byte(key), func(r record) {
						if string(r.key()) != key {
							fail(fmt.Errorf("asked for %q, got %q", key, r.key()))
						}
						if rng.IntN(8) == 0 {
							// Longer than a reader may: the writer must go on,
							// and must not take away what this one looks at.
							time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
						}
						check(r.value(), r.seq())
					})
				default:
					var seq int64
					var ok bool
					if dst, seq, ok = s.get([]byte(key), dst[:0]); ok {
						check(dst, seq)
					}
				}
			}
		})
	}

	type cutAndModel struct {
		cut   *cut
		model map[string]int64
	}
	cuts := make(chan cutAndModel, 3)
	wg.Go(func() {
		for c := range cuts {
			if c.cut.len() != len(c.model) {
				fail(fmt.Errorf("cut has %d keys, model %d", c.cut.len(), len(c.model)))
			}
			seen := 0
			c.cut.each(func(r record, hash uint64) bool {
				seen++
				seq, err := chptest.CheckValue(r.key(), r.value())
				if err == nil && (c.model[string(r.key())] != seq || seq != r.seq() || hash != hashKey(r.key())) {
					err = fmt.Errorf("cut has %q #%d, model #%d", r.key(), seq, c.model[string(r.key())])
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
			c.cut.pieces(func(p piece) bool {
				for w := p.wire(); len(w) > 0; w = w[record(w).size():] {
					n++
				}
				seen -= p.n
				return true
			})
			if seen != 0 || n != len(c.model) && !stop.Load() {
				fail(fmt.Errorf("pieces hold %d records, %d more or less than they say", n, seen))
			}
			c.cut.release()
		}
	})

	type lent struct {
		piece
		sum uint32
	}
	borrowed := make(chan lent, 100)
	wg.Go(func() {
		for l := range borrowed {
			if crc32.ChecksumIEEE(l.wire()) != l.sum {
				fail(fmt.Errorf("octets changed while they were borrowed"))
			}
			l.seg.Release()
		}
	})

	rng := rand.New(rand.NewPCG(1, 6))
	model := map[string]int64{}
	seq := int64(1)
	var b batch
	var out []piece
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
		out = s.apply(b.wire, b.spans, start, out[:0])
		for _, p := range out {
			p.seg.Retain()
			select {
			case borrowed <- lent{p, crc32.ChecksumIEEE(p.wire())}:
			default:
				p.seg.Release()
			}
		}
		if round%7 == 0 {
			key := fmt.Sprintf("/key/%d", rng.IntN(live))
			s.put([]byte(key), seq, nil, nil, chptest.Value(key, seq, 10))
			model[key] = seq
			seq++
		}
		if round%20 == 0 {
			select {
			case cuts <- cutAndModel{s.cut(), maps.Clone(model)}:
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
		value, _, _ := s.get([]byte(key), nil)
		if got, err := chptest.CheckValue([]byte(key), value); err != nil || got != seq {
			t.Fatalf("%q is #%d, %v, want #%d", key, got, err, seq)
		}
		final[key] = string(value)
	}
	s.check(t, final)
}
