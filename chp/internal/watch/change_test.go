package watch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/testenv"
)

// pub is an update; without a value it deletes its key.
type pub struct {
	key   string
	seq   int64
	value string
}

func put(s *store.Map, updates ...pub) {
	for _, p := range updates {
		s.Put([]byte(p.key), p.seq, nil, nil, []byte(p.value))
	}
}

// contents returns the keys with their sequences and values.
func contents(s *store.Map) map[string]string {
	m := map[string]string{}
	c := s.Cut()
	defer c.Release()
	c.Records(func(r kvmsg.Record) bool {
		m[string(r.Key())] = fmt.Sprint(r.Seq(), string(r.Value()))
		return true
	})
	return m
}

// replay applies the events of a change to the map that a watch has seen, and checks that
// none is superfluous.
func replay(t *testing.T, seen map[string]string, d *change, of subtree.Set) (synced bool) {
	t.Helper()
	d.open()
	defer d.release()
	for {
		var e Event
		if !d.next(&e, &of) {
			return synced
		}
		key, value := string(e.Key), fmt.Sprint(e.Sequence, string(e.Value))
		old, had := seen[key]
		switch e.Op {
		case OpSet:
			if had && old == value {
				t.Errorf("told that %s is %s still", key, value)
			}
			if synced {
				t.Errorf("%s came after OpSynced", key)
			}
			seen[key] = value
		case OpDelete:
			if !had {
				t.Errorf("told of the end of %s, which there was not", key)
			}
			if e.Sequence != d.after.sequence {
				t.Errorf("deletion of %s has sequence %d, want the snapshot's %d", key, e.Sequence, d.after.sequence)
			}
			delete(seen, key)
		case OpSynced:
			synced = true
		}
	}
}

// randomStore has some of 200 keys, written in several turns, so that its log
// has records that are dead.
func randomStore(t *testing.T, random *rand.Rand, values int) *store.Map {
	s := store.New(store.Options{MinSegment: 1 << 10})
	for turn := range 1 + random.IntN(3) {
		for i := range 200 {
			key := fmt.Sprintf("/%c/%d", "ab"[i%2], i)
			switch random.IntN(4) {
			case 0:
				put(s, pub{key, int64(turn), ""})
			case 1:
			default:
				put(s, pub{key, int64(turn), fmt.Sprint("value ", random.IntN(values))})
			}
		}
	}
	return s
}

func TestChangeAgainstModel(t *testing.T) {
	t.Parallel()
	for round := range testenv.Rounds(100) {
		random := rand.New(rand.NewPCG(3, uint64(round)))
		of := subtree.New([][]string{nil, {"/a/"}, {"/b/3", "/b/5"}}[round%3])
		within := func(s *store.Map) map[string]string {
			m := contents(s)
			maps.DeleteFunc(m, func(key, _ string) bool { return !of.Contains([]byte(key)) })
			return m
		}
		before, after := randomStore(t, random, 3), randomStore(t, random, 3)
		beforeView, afterView := NewState(before, nil, 10), NewState(after, nil, 20)
		want, middle := within(after), within(before)
		// The new state moves on before the watch looks.
		for i := range 200 {
			put(after, pub{fmt.Sprintf("/a/%d", i), 30, []string{"", "late"}[i%2]})
		}

		seen := map[string]string{}
		if synced := replay(t, seen, &change{after: beforeView.retain(), synced: true}, of); !synced || !maps.Equal(seen, middle) {
			t.Fatalf("round %d: a first snapshot of %v gave %v, synced %v", round, middle, seen, synced)
		}
		if synced := replay(t, seen, &change{before: beforeView, after: afterView}, of); synced || !maps.Equal(seen, want) {
			t.Fatalf("round %d: from %v to %v gave %v, synced %v", round, middle, want, seen, synced)
		}
	}
}

func TestChangeReleasesItsCuts(t *testing.T) {
	t.Parallel()
	before, after := store.New(store.Options{}), store.New(store.Options{})
	put(before, pub{"a", 1, "x"}, pub{"b", 2, "y"})
	put(after, pub{"a", 1, "z"})
	b, a := NewState(before, nil, 2), NewState(after, nil, 1)
	d := &change{before: b.retain(), after: a.retain()}
	b.Release()
	a.Release()
	d.open()
	d.release()
	for _, s := range []*store.Map{before, after} {
		if refs := s.References(); refs != 0 {
			t.Errorf("%d references are left", refs)
		}
	}
}

func TestChangeAllocatesNothingPerEvent(t *testing.T) {
	s := store.New(store.Options{})
	for i := range 2000 { // for three attempts
		put(s, pub{fmt.Sprint("key", i), int64(i), "value"})
	}
	all := subtree.New(nil)
	empty := store.New(store.Options{})
	d := &change{before: NewState(empty, nil, 0), after: NewState(s, nil, 2000)}
	d.open()
	var e Event
	if n := testenv.Allocs(0, 500, func() {
		if !d.next(&e, &all) || e.Op != OpSet {
			t.Fatal("no event")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// A key that was set again to the same value, such as with other properties, is reported.
func TestChangeReportsTheSameValueSetAgain(t *testing.T) {
	t.Parallel()
	before, after := store.New(store.Options{}), store.New(store.Options{})
	put(before, pub{"same", 1, "x"}, pub{"again", 2, "y"})
	put(after, pub{"same", 1, "x"})
	for s, ttl := range map[*store.Map]string{before: "ttl=9\n", after: "ttl=8\n"} { // that is left
		s.Put([]byte("aging"), 1, nil, []byte(ttl), []byte("x"))
	}
	before.Put([]byte("foreign"), 1, nil, []byte("by=you\n"), []byte("y")) // another server's
	after.Put([]byte("again"), 3, nil, []byte("by=me\n"), []byte("y"))
	after.Put([]byte("foreign"), 1, nil, []byte("by=me\n"), []byte("y"))
	d := &change{before: NewState(before, nil, 2), after: NewState(after, nil, 3)}
	d.open()
	defer d.release()
	var e Event
	all := subtree.New(nil)
	want := map[string]int64{"again": 3, "foreign": 1}
	for d.next(&e, &all) {
		if e.Sequence == 0 || e.Sequence != want[string(e.Key)] || e.Cause != CauseResync || string(e.Properties) != "by=me\n" {
			t.Errorf("%+v", e)
		}
		delete(want, string(e.Key))
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}
}
