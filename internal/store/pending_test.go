package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/internal/chptest"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// newPending returns a store that leaves records pending from its first segment on.
func newPending() *Map {
	s := New(Options{MinSegment: 4096, Shards: 8, GarbageCollected: true})
	s.pendingFrom = 0
	return s
}

func TestPendingAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 21))
		s := newPending()
		model := map[string]string{}
		keys := 1 + rng.IntN(1000)
		seen := 0 // times when a key was pending
		compare := func(key string) {
			value, ok := s.GetGarbageCollected(kvmsg.HashKey([]byte(key)), []byte(key), nil)
			if want, there := model[key]; ok != there || string(value) != want {
				t.Fatalf("get %q = %q, %v, want %q, %v", key, value, ok, want, there)
			}
		}
		name := func() string {
			key := fmt.Sprint(rng.IntN(keys))
			if len(key) == 1 {
				key = strings.Repeat(key, 300) // its frame is long
			}
			return key
		}
		for i := range 30_000 {
			key := name()
			hash := kvmsg.HashKey([]byte(key))
			if rng.IntN(10) == 0 {
				if _, there := model[key]; s.Delete(hash, []byte(key)) != there {
					t.Fatalf("deletion of %q, which is there: %v", key, there)
				}
				delete(model, key)
			} else {
				value := bytes.Repeat([]byte{byte(i)}, rng.IntN(60))
				if rng.IntN(3000) == 0 {
					value = make([]byte, ownSegment+rng.IntN(maxSegment))
				}
				s.PutHash(hash, []byte(key), value)
				model[key] = string(value)
				if s.findPending(hash, []byte(key)) != nil {
					seen++
				}
			}
			compare(key)
			compare(name())
			switch {
			case i%1000 == 0:
				if n := s.Stats().Keys; n != len(model) {
					t.Fatalf("%d keys, want %d", n, len(model))
				}
				s.check(t, model)
			case i%777 == 0:
				c := s.Cut()
				n := 0
				c.Records(func(r kvmsg.Record) bool {
					if n++; model[string(r.Key())] != string(r.Value()) {
						t.Fatalf("cut has %q = %q, want %q", r.Key(), r.Value(), model[string(r.Key())])
					}
					return true
				})
				if c.Release(); n != len(model) || c.Len() != n {
					t.Fatalf("cut has %d of %d keys, want %d", n, c.Len(), len(model))
				}
			}
		}
		s.Flush()
		s.check(t, model)
		if seen == 0 || s.Pending() {
			t.Errorf("%d times a key was pending; at the end there is one: %v", seen, s.Pending())
		}
	}
}

// A reader finds at least the values that were set when it began, and those that another
// reader had found by then.
func TestPendingIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	const keys = 100
	s := newPending()
	names, hashes := make([][]byte, keys), make([]uint64, keys)
	var newest [keys]atomic.Int64 // sequences that were set, or found
	raise := func(i int, seq int64) {
		for {
			if old := newest[i].Load(); old >= seq || newest[i].CompareAndSwap(old, seq) {
				return
			}
		}
	}
	put := func(i int, seq int64, size int) {
		s.PutHash(hashes[i], names[i], chptest.Value(string(names[i]), seq, size))
		raise(i, seq)
	}
	for i := range keys {
		names[i] = fmt.Appendf(nil, "/key/%d", i)
		hashes[i] = kvmsg.HashKey(names[i])
		put(i, 1, 0)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 22))
			var dst []byte
			for !stop.Load() {
				i := rng.IntN(keys)
				least := newest[i].Load()
				var ok bool
				dst, ok = s.GetGarbageCollected(hashes[i], names[i], dst[:0])
				seq, err := chptest.CheckValue(names[i], dst)
				if !ok || err != nil || seq < least {
					t.Errorf("%s is #%d, %v, %v, want at least #%d", names[i], seq, ok, err, least)
					stop.Store(true)
				}
				raise(i, seq)
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 23))
	for seq := int64(2); seq < int64(testenv.Rounds(300_000)) && !stop.Load(); seq++ {
		put(rng.IntN(keys), seq, rng.IntN(60))
	}
	stop.Store(true)
	wg.Wait()
	if !s.defers || s.log.victim.moved == 0 {
		t.Errorf("records were left pending: %v; compaction moved %d bytes", s.defers, s.log.victim.moved)
	}
}
