package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/internal/testenv"
)

// load returns the share of the slots of all tables that are in use or dead.
func (x *index) load() (used, dead, slots int) {
	for i := range x.tables {
		used += int(x.counts[i].used)
		dead += int(x.counts[i].dead)
		if t := x.tables[i].Load(); t != nil {
			slots += len(t.slots)
		}
	}
	return used, dead, slots
}

// checkCounts compares the counts of the index with the content of its tables.
func (x *index) checkCounts(t *testing.T) {
	t.Helper()
	for i := range x.tables {
		var used, dead uint32
		table := x.tables[i].Load()
		if table == nil {
			continue
		}
		for s := range table.slots {
			switch table.slots[s].Load() {
			case slotEmpty:
			case slotDead:
				dead++
			default:
				used++
			}
		}
		if c := x.counts[i]; c.used != used || c.dead != dead || int(used+dead) == len(table.slots) {
			t.Fatalf("table %d of %d slots has %d used and %d dead, counts %d and %d", i, len(table.slots), used, dead, c.used, c.dead)
		}
	}
}

func TestIndexGrowsAndShrinks(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	for _, shards := range []int{1, 8, MaxShards} {
		s := New(Options{Shards: shards})
		const keys = 20_000
		key := func(i int) []byte { return fmt.Appendf(nil, "/key/%d", i) }
		for i := range keys {
			s.Put(key(i), int64(i), nil, nil, []byte("v"))
			if i&(i-1) == 0 {
				s.checkCounts(t)
			}
		}
		used, _, slots := s.load()
		if used != keys || slots < 2*keys || slots > 6*keys+shards*minTable {
			t.Errorf("%d shards: %d keys in %d slots", shards, used, slots)
		}
		for i := range keys {
			if _, seq, ok := s.Get(key(i), nil); !ok || seq != int64(i) {
				t.Fatalf("key %d is #%d, %v", i, seq, ok)
			}
		}
		for i := range keys {
			s.Put(key(i), 0, nil, nil, nil)
			if i&(i-1) == 0 {
				s.checkCounts(t)
			}
		}
		used, dead, slots := s.load()
		if used != 0 || dead != 0 || slots > shards*16*minTable {
			t.Errorf("%d shards: after deletion %d keys and %d dead in %d slots", shards, used, dead, slots)
		}
	}
}

// Keys that come and go must not fill the tables with dead slots.
func TestIndexUnderChurn(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	s := New(Options{Shards: 1})
	rng := rand.New(rand.NewPCG(1, 15))
	var alive []int
	next := 0
	for range 200_000 {
		if len(alive) < 100 || rng.IntN(2) == 0 && len(alive) < 200 {
			s.Put(fmt.Appendf(nil, "%d", next), 0, nil, nil, []byte("v"))
			alive = append(alive, next)
			next++
		} else {
			i := rng.IntN(len(alive))
			s.Put(fmt.Appendf(nil, "%d", alive[i]), 0, nil, nil, nil)
			alive[i] = alive[len(alive)-1]
			alive = alive[:len(alive)-1]
		}
	}
	s.checkCounts(t)
	used, dead, slots := s.load()
	if used != len(alive) || slots > 2048 {
		t.Errorf("%d keys, %d dead in %d slots, want %d keys", used, dead, slots, len(alive))
	}
	for _, i := range alive {
		if _, _, ok := s.Get(fmt.Appendf(nil, "%d", i), nil); !ok {
			t.Fatalf("key %d is lost", i)
		}
	}
}

// Keys whose hashes agree in all bits that the index uses are told apart by the records.
// Such keys are made here by lying about the hash.
func TestIndexCollisions(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	const hash = 0x123456789abcdef0
	const keys = 6 // as many as fit without a rebuild, which would find out
	key := func(i int) []byte { return fmt.Appendf(nil, "/key/%d", i) }
	for round := range 3 {
		for i := range keys / 2 {
			s.PutHash(hash, key(i), []byte{byte(i), byte(round)})
		}
		for i := range keys / 2 {
			value, ok := s.GetGarbageCollected(hash, key(i), nil)
			if !ok || value[0] != byte(i) || value[1] != byte(round) {
				t.Fatalf("key %d is %v, %v", i, value, ok)
			}
		}
		if _, ok := s.GetGarbageCollected(hash, key(99), nil); ok {
			t.Fatal("found a key that is not there")
		}
	}
	if !s.Delete(hash, key(1)) || s.Delete(hash, key(1)) {
		t.Error("deletion of one of them")
	}
	for i := range keys / 2 {
		if _, ok := s.GetGarbageCollected(hash, key(i), nil); ok != (i != 1) {
			t.Errorf("key %d is there: %v", i, ok)
		}
	}
	s.checkCounts(t)
}
