package store

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"clustermap/internal/chptest"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// skewed returns one of n keys, some of them far more often than others.
func skewed(rng *rand.Rand, n int) int {
	x := rng.Float64()
	return int(x * x * x * x * float64(n))
}

// fill makes batches of records of 80 bytes, as the collector brings them.
func fill(t testing.TB, batches, per int, key func() int) []batch {
	out := make([]batch, batches)
	for i := range out {
		for range per {
			out[i].add(t, fmt.Sprintf("/k/%07d", key()), make([]byte, 16), nil, make([]byte, 80-kvmsg.RecordSize(10, 16, 0, 0)))
		}
	}
	return out
}

func TestMemoryIsBounded(t *testing.T) {
	testenv.Alone(t)
	updates := 10_000_000
	if testing.Short() {
		updates /= 20
	}
	rng := rand.New(rand.NewPCG(1, 7))
	for _, test := range []struct {
		name    string
		keys    int
		per     int
		updates int
		key     func() int
	}{
		{"1000 keys, uniform", 1000, 3000, updates, func() int { return rng.IntN(1000) }},
		{"1000 keys, small batches", 1000, 10, updates / 5, func() int { return rng.IntN(1000) }},
		{"100k keys, skewed", 100_000, 3000, updates, func() int { return skewed(rng, 100_000) }},
		{"100k keys, one hot", 100_000, 1000, updates / 5, func() int { return rng.IntN(100_000) * rng.IntN(2) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := chptest.Heap()
			s := New(Options{})
			all := 0
			load := fill(t, test.keys/100, 100, func() int { all++; return all - 1 })
			for i := range load {
				s.Apply(load[i].wire, load[i].spans, 1, nil)
			}
			load = nil
			batches := fill(t, 64, test.per, test.key)
			base := chptest.Heap() - before // the batches, and the store when it is new
			var out []Piece
			most := 0
			for done, i := 0, 0; done < test.updates; done, i = done+test.per, i+1 {
				b := &batches[i%len(batches)]
				out = s.Apply(b.wire, b.spans, 1, out[:0])
				st := s.Stats()
				most = max(most, st.LogBytes+st.IdleBytes)
			}
			st := s.Stats()
			if st.Keys != test.keys || st.LiveBytes != 80*test.keys {
				t.Fatalf("%d keys, %d bytes live", st.Keys, st.LiveBytes)
			}
			// Twice the live, eight segments, and the idle ones: half of all that,
			// once waiting and once free.
			segment := s.log.segmentSize(0)
			bound := 2 * (2*st.LiveBytes + slackSegments*segment + 2*segment)
			t.Logf("live %d KiB, at most %d KiB in segments of %d KiB, bound %d KiB; %d segments recycled, %.1f %% moved",
				st.LiveBytes>>10, most>>10, segment>>10, bound>>10, s.log.recycled, float64(st.Moved)/float64(test.updates)/0.8)
			if most > bound {
				t.Errorf("the log grew to %d bytes, bound %d", most, bound)
			}
			if grown := chptest.Heap() - before - base; grown > bound {
				t.Errorf("the heap grew by %d bytes, bound %d", grown, bound)
			}
			runtime.KeepAlive(batches)
			runtime.KeepAlive(s)
		})
	}
}

func TestSmallStoresAreSmall(t *testing.T) {
	testenv.Alone(t)
	const stores = 300
	before := chptest.Heap()
	all := make([]*Map, stores)
	for i := range all {
		all[i] = New(Options{})
		for n := range 3000 {
			all[i].Put(fmt.Appendf(nil, "/key/%d", n%3), int64(n+1), nil, nil, []byte("value"))
		}
	}
	each := (chptest.Heap() - before) / stores
	t.Logf("%d bytes a store of 3 keys after 3000 updates", each)
	if each > 100<<10 {
		t.Errorf("a store of 3 keys takes %d bytes", each)
	}
	runtime.KeepAlive(all)
}

// After a purge the memory must come back, without a big update to push it.
func TestMemoryComesBack(t *testing.T) {
	testenv.Alone(t)
	s := New(Options{})
	for i := range 200_000 {
		s.Put(fmt.Appendf(nil, "/key/%d", i), int64(i+1), nil, nil, make([]byte, 50))
	}
	full := s.Stats()
	for i := range 200_000 - 10 {
		s.Put(fmt.Appendf(nil, "/key/%d", i), int64(i+1), nil, nil, nil)
	}
	for i := range 20_000 {
		s.Put([]byte("/key/0"), int64(i+1), nil, nil, make([]byte, 50))
	}
	st := s.Stats()
	slots := 0
	for i := range s.tables {
		if table := s.tables[i].Load(); table != nil {
			slots += len(table.slots)
		}
	}
	t.Logf("full: %d KiB; purged: %d KiB in use, %d KiB idle, %d slots", full.LogBytes>>10, st.LogBytes>>10, st.IdleBytes>>10, slots)
	if st.Keys != 11 || st.LogBytes+st.IdleBytes > full.LogBytes/10 || slots > MaxShards*minTable*8 {
		t.Errorf("purged store keeps %d keys, %d bytes in use, %d idle, %d slots", st.Keys, st.LogBytes, st.IdleBytes, slots)
	}
}

// A reader that does not leave stops recycling, and nothing more: memory goes to
// the garbage collector instead, and other readers find all that they should.
func TestMemoryIsBoundedBesideAStuckReader(t *testing.T) {
	testenv.Alone(t)
	const keys = 1000
	s := New(Options{})
	rng := rand.New(rand.NewPCG(1, 8))
	batches := fill(t, 64, 1000, func() int { return rng.IntN(keys) })
	before := chptest.Heap()
	stuck := readers.enter()
	defer exit(stuck)
	for i := range 2000 {
		b := &batches[i%len(batches)]
		s.Apply(b.wire, b.spans, 1, nil)
	}
	st := s.Stats()
	if st.LogBytes+st.IdleBytes > 8<<20 {
		t.Errorf("%d bytes in use, %d idle", st.LogBytes, st.IdleBytes)
	}
	if grown := chptest.Heap() - before; grown > 12<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	for i := range keys {
		key := fmt.Appendf(nil, "/k/%07d", i)
		if value, _, ok := s.Get(key, nil); !ok || len(value) == 0 {
			t.Fatalf("%q is lost", key)
		}
	}
	runtime.KeepAlive(batches)
}

func TestStoreAllocatesNothing(t *testing.T) {
	testenv.Alone(t)
	for _, keys := range []int{100, 10_000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 9))
			batches := fill(t, 32, 3000, func() int { return rng.IntN(keys) })
			s := New(Options{})
			var out []Piece
			run := func() {
				for i := range batches {
					out = s.Apply(batches[i].wire, batches[i].spans, 1, out[:0])
				}
			}
			for range 10 {
				run()
			}
			recycled := s.log.recycled
			if n := testenv.Allocs(0, 1, func() {
				for range 10 {
					run()
				}
			}); n != 0 {
				t.Errorf("%v allocations in %d records", n, 10*32*3000)
			}
			if s.log.recycled < recycled+100 {
				t.Errorf("%d segments recycled: the test is too short", s.log.recycled-recycled)
			}
			key, value := []byte("/k/0000001"), make([]byte, 30)
			if n := testenv.Allocs(0, 20_000, func() { s.Put(key, 1, nil, nil, value) }); n != 0 {
				t.Errorf("put: %v allocations", n)
			}
			dst := make([]byte, 0, 100)
			if n := testenv.Allocs(0, 1000, func() {
				dst, _, _ = s.Get(key, dst[:0])
				s.View(key, func(r kvmsg.Record) { dst = append(dst[:0], r.Value()...) })
				dst, _ = s.KeyOf(kvmsg.HashKey(key), 1, dst[:0])
			}); n != 0 {
				t.Errorf("get, view and keyOf: %v allocations", n)
			}
		})
	}
}
