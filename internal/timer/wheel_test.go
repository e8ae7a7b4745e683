package timer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

func TestWheelAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 3))
			now := time.Duration(rng.Int64N(int64(time.Hour)))
			var w wheel
			type deadline struct {
				seq int64
				due int64
			}
			model := map[uint64]deadline{}
			var seq int64
			done := int64(now / wheelTick)
			for range 3000 {
				for range rng.IntN(4) {
					hash := uint64(rng.IntN(200)) << 2
					if rng.IntN(8) == 0 {
						w.remove(hash)
						delete(model, hash)
						continue
					}
					// Of all sizes, up to beyond the reach of the last level, and
					// into the past.
					after := time.Duration(rng.Int64N(int64(wheelTick) << rng.IntN(37)))
					if rng.IntN(10) == 0 {
						after = -after
					}
					seq++
					w.add(hash, seq, now+after, now)
					due := int64((now + after + wheelTick - 1) / wheelTick)
					model[hash] = deadline{seq, max(due, done+1)}
				}
				if w.len() != len(model) {
					t.Fatalf("%d deadlines, want %d", w.len(), len(model))
				}
				now += time.Duration(rng.Int64N(int64(wheelTick) << rng.IntN(32)))
				target := int64(now / wheelTick)
				last := int64(0)
				for w.advance(now, 1+rng.IntN(50), func(hash uint64, seq int64) {
					d, ok := model[hash]
					if !ok || d.seq != seq || d.due > target || d.due < last {
						t.Fatalf("fired %d #%d at tick %d after one of %d; model has %+v, %v", hash, seq, target, last, d, ok)
					}
					last = d.due
					delete(model, hash)
				}) {
				}
				done = target
				for hash, d := range model {
					if d.due <= target {
						t.Fatalf("%d is due at %d, and has not fired at %d", hash, d.due, target)
					}
				}
			}
		})
	}
}

func TestWheelAddWhileItFires(t *testing.T) {
	t.Parallel()
	now := time.Duration(0)
	var w wheel
	w.add(4, 1, now, now)
	fired := 0
	for i := range 1000 {
		now += wheelTick
		w.advance(now, 1000, func(hash uint64, seq int64) {
			fired++
			w.add(hash, seq+1, now, now) // at once: that is the next tick
			w.add(hash+4*uint64(i+1), 0, now+time.Hour, now)
			if i > 0 {
				w.remove(hash + 4*uint64(i))
			}
		})
	}
	if fired != 1000 || w.len() != 2 {
		t.Errorf("fired %d times, %d deadlines left", fired, w.len())
	}
}

func TestWheelKeepsItsSize(t *testing.T) {
	now := time.Duration(0)
	var w wheel
	turn := func() {
		for i := range uint64(100) {
			w.add(i<<2, 1, now+time.Duration(i)*wheelTick, now)
		}
		now += time.Second
		for w.advance(now, 10, func(uint64, int64) {}) {
		}
	}
	turn()
	if n := testenv.Allocs(0, 1000, turn); n != 0 {
		t.Errorf("%v allocations for a hundred deadlines", n)
	}
	if len(w.chunks) > 2 {
		t.Errorf("%d chunks in the slab", len(w.chunks))
	}
}

func BenchmarkWheel(b *testing.B) {
	now := time.Duration(0)
	var w wheel
	b.ReportAllocs()
	for i := range b.N {
		w.add(uint64(i)<<2, int64(i), now+time.Second, now)
		if i&1023 == 0 {
			now += wheelTick
			w.advance(now, 1<<30, func(uint64, int64) {})
		}
	}
}
