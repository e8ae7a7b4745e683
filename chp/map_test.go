package chp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/internal/chptest"
	"clustermap/internal/testenv"
)

func TestMapAgainstModel(t *testing.T) {
	testenv.Alone(t)
	t.Parallel()
	for _, stripes := range []int{0, 1, 5} {
		rng := rand.New(rand.NewPCG(uint64(stripes), 11))
		m := NewMap(MapOptions{Stripes: stripes})
		model := map[string]string{}
		for i := range 100_000 {
			key := fmt.Sprint(rng.IntN(1000))
			switch rng.IntN(30) {
			case 0:
				key = ""
			case 1:
				key = strings.Repeat(key, 1+300/len(key)) // larger than CHP allows
			case 2:
				key = "HUGZ\x00" + key // reserved, and with NUL: nothing to a Map
			}
			if rng.IntN(4) == 0 {
				_, there := model[key]
				if got := m.Delete(key); got != there {
					t.Fatalf("Delete(%q) = %v, want %v", key, got, there)
				}
				delete(model, key)
			} else {
				value := bytes.Repeat([]byte{byte(i)}, rng.IntN(50)*rng.IntN(20))
				m.Set(key, value)
				model[key] = string(value)
			}
			if want, there := model[key]; true {
				got, ok := m.Get(key)
				if ok != there || string(got) != want {
					t.Fatalf("Get(%q) = %q, %v, want %q, %v", key, got, ok, want, there)
				}
			}
		}
		if m.Len() != len(model) || m.Stats().Len != len(model) {
			t.Fatalf("Len is %d, want %d", m.Len(), len(model))
		}
		seen := map[string]bool{}
		m.Range(func(key, value []byte) bool {
			if want, there := model[string(key)]; !there || want != string(value) || seen[string(key)] {
				t.Fatalf("Range shows %q %q, want %q, %v", key, value, want, there)
			}
			seen[string(key)] = true
			return true
		})
		if len(seen) != len(model) {
			t.Fatalf("Range shows %d keys, want %d", len(seen), len(model))
		}
	}
}

func TestMapBigValues(t *testing.T) {
	t.Parallel()
	m := NewMap(MapOptions{Stripes: 1})
	const own, segment = 512 << 10, 2 << 20 // from own on a value has a segment to itself
	sizes := []int{0, 1, 255, 256, own - 30, own, own + 1, segment - 30, segment, 3 * segment}
	for round := range byte(3) {
		for i, size := range sizes {
			m.Set(fmt.Sprint(i), bytes.Repeat([]byte{round + 1}, size))
		}
		for i, size := range sizes {
			if value, ok := m.Get(fmt.Sprint(i)); !ok || len(value) != size || bytes.Count(value, []byte{round + 1}) != size {
				t.Fatalf("value of %d bytes comes back with %d", size, len(value))
			}
		}
	}
}

func TestMapRangeStopsAndNests(t *testing.T) {
	t.Parallel()
	m := NewMap(MapOptions{})
	for i := range 1000 {
		m.Set(fmt.Sprint(i), []byte("old"))
	}
	n := 0
	m.Range(func(key, value []byte) bool {
		n++
		m.Set(string(key), []byte("new")) // does not wait for Range, nor show in it
		m.Delete("no such key")
		if string(value) != "old" {
			t.Fatalf("Range shows %q, set while it ran", value)
		}
		return n < 500
	})
	if n != 500 {
		t.Errorf("f was called %d times after it said stop at 500", n)
	}
	func() {
		defer func() { _ = recover() }()
		m.Range(func(_, _ []byte) bool { panic("f") })
	}()
	m.Set("after", nil)
	if _, ok := m.Get("after"); !ok {
		t.Error("no more writing after f panicked")
	}
}

func TestMapConcurrently(t *testing.T) {
	t.Parallel()
	m := NewMap(MapOptions{})
	var stop atomic.Bool
	var writers, readers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 12))
			for seq := range int64(testenv.Rounds(20_000)) {
				key := fmt.Sprintf("%d/%d", w, rng.IntN(500))
				if rng.IntN(5) == 0 {
					m.Delete(key)
				} else {
					m.Set(key, chptest.Value(key, seq, rng.IntN(40)))
				}
			}
		})
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 13))
			var dst []byte
			for !stop.Load() {
				key := fmt.Sprintf("%d/%d", rng.IntN(4), rng.IntN(500))
				var ok bool
				if dst, ok = m.AppendGet(dst[:0], key); ok {
					if _, err := chptest.CheckValue([]byte(key), dst); err != nil {
						t.Error(err)
						return
					}
				}
				if rng.IntN(1000) == 0 {
					m.Range(func(key, value []byte) bool {
						_, err := chptest.CheckValue(key, value)
						if err != nil {
							t.Error(err)
						}
						return err == nil
					})
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
}

func TestMapAllocatesNothing(t *testing.T) {
	testenv.Alone(t)
	m := NewMap(MapOptions{})
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("/key/", i)
	}
	value := make([]byte, 100)
	set := func() {
		for _, key := range keys {
			m.Set(key, value)
		}
		m.Delete(keys[0])
	}
	for range 100 {
		set()
	}
	// Not nothing, for the garbage collector gets the old segments, but that is
	// three allocations for a whole segment of sets.
	if n := testenv.Allocs(0, 500, set); n > 0.08*float64(len(keys)) {
		t.Errorf("%v allocations in %d sets", n, len(keys))
	}
	dst := make([]byte, 0, len(value))
	if n := testenv.Allocs(0, 500, func() {
		for _, key := range keys {
			dst, _ = m.AppendGet(dst[:0], key)
		}
	}); n != 0 {
		t.Errorf("%v allocations in %d gets", n, len(keys))
	}
}

func TestMapsAreSmall(t *testing.T) {
	testenv.Alone(t)
	before := chptest.Heap()
	all := make([]*Map, 100)
	for i := range all {
		all[i] = NewMap(MapOptions{Stripes: 8})
		for n := range 3000 {
			all[i].Set(fmt.Sprint(n%3), []byte("value"))
		}
	}
	each := (chptest.Heap() - before) / len(all)
	t.Logf("%d bytes a map of 3 keys after 3000 updates", each)
	if each > 100<<10 {
		t.Errorf("a map of 3 keys takes %d bytes", each)
	}
	runtime.KeepAlive(all)
}

// In a large map, a value that was just set is found by all methods, although its record
// may not be in the index yet.
func TestMapLarge(t *testing.T) {
	t.Parallel()
	const keys = 3000
	m := NewMap(MapOptions{Stripes: 1})
	key := func(i int) string { return fmt.Sprint("/key/", i) }
	for i := range keys {
		m.Set(key(i), make([]byte, 1000))
		if n := m.Len(); n != i+1 {
			t.Fatalf("Len is %d after %d keys", n, i+1)
		}
	}
	for i := range keys {
		m.Set(key(i), []byte("new"))
		if i%100 == 0 {
			if !m.Delete(key(i)) || m.Delete(key(i)) {
				t.Fatalf("deletion of %s", key(i))
			}
			m.Set(key(i), []byte("newer"))
		}
		if got, ok := m.Get(key(i)); !ok || !strings.HasPrefix(string(got), "new") {
			t.Fatalf("%s is %q, %v", key(i), got, ok)
		}
	}
	n := 0
	m.Range(func(key, value []byte) bool {
		if n++; !strings.HasPrefix(string(value), "new") {
			t.Fatalf("Range shows %q = %q", key, value)
		}
		return true
	})
	if st := m.Stats(); n != keys || st.Len != keys || m.Len() != keys {
		t.Errorf("Range shows %d keys, Stats %d, Len %d, want %d", n, st.Len, m.Len(), keys)
	}
}

// Len counts a key from the end of its first Set on, also while its record is pending or
// becomes linked.
func TestMapLenHasEveryKey(t *testing.T) {
	t.Parallel()
	m := NewMap(MapOptions{Stripes: 1})
	for i := range 2000 {
		m.Set(strconv.Itoa(-i), make([]byte, 1000)) // from here on records are left pending
	}
	base := m.Len()
	var set atomic.Int64 // keys that are there
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	wg.Go(func() {
		for i := 1; i <= testenv.Rounds(200_000) && !stop.Load(); i++ {
			key := strconv.Itoa(i)
			m.Set(key, []byte{1})
			set.Store(int64(i))
			m.Set(key, []byte{2}) // links the pending record
		}
		stop.Store(true)
	})
	for !stop.Load() {
		if least, n := base+int(set.Load()), m.Len(); n < least {
			t.Fatalf("Len is %d after %d keys were set", n, least)
		}
	}
}
