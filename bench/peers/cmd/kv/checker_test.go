package main

import (
	"errors"
	"testing"
)

// feed gives a checker all updates in order, except that edit may change them, and returns
// its report and whether it waits for more.
func feed(w workload, conflates bool, edit func([]int) []int) (report, bool) {
	var all []int
	for n := range w.total() {
		all = append(all, n)
	}
	c := newChecker(w, conflates, func() {})
	held := newTable()
	more := true
	for _, n := range edit(all) {
		if !more {
			break
		}
		value := make([]byte, valueSize)
		fill(value, n, w.key(n), 1)
		held.put([]byte(c.names[w.key(n)]), value)
		more = c.see([]byte(c.names[w.key(n)]), value)
	}
	return c.conclude(held.get), more
}

func without(n int) func([]int) []int {
	return func(all []int) []int { return append(all[:n:n], all[n+1:]...) }
}

func TestChecker(t *testing.T) {
	t.Parallel()
	w := workload{Keys: 100, Updates: 1000, Lanes: 1}
	lanes := workload{Keys: 100, Updates: 1000, Lanes: 10}
	finals := map[int]bool{}
	for _, n := range w.finals() {
		finals[n] = true
	}
	replaced := w.Keys
	for finals[replaced] {
		replaced++
	}
	same := func(all []int) []int { return all }
	swapped := func(i, j int) func([]int) []int {
		return func(all []int) []int {
			all[i], all[j] = all[j], all[i]
			return all
		}
	}
	doubled := func(all []int) []int { return append(all[:200:200], all[199:]...) }
	for _, c := range []struct {
		name      string
		w         workload
		conflates bool
		edit      func([]int) []int
		sound     bool
	}{
		{"all", w, false, same, true},
		{"all, in lanes", lanes, false, same, true},
		{"all, conflating", w, true, same, true},
		{"one lost", w, false, without(replaced), false},
		{"one lost, conflating", w, true, without(replaced), true},
		{"the last lost", w, false, without(w.total() - 1), false},
		{"the last lost, conflating", w, true, without(w.total() - 1), false},
		{"one doubled", w, false, doubled, false},
		{"one doubled, conflating", w, true, doubled, true},
		{"two swapped", w, false, swapped(500, 501), false},
		{"two swapped, of different lanes", lanes, false, swapped(500, 501), true},
		{"two swapped, of one lane", lanes, false, swapped(500, 510), false},
	} {
		r, _ := feed(c.w, c.conflates, c.edit)
		err := r.fault(c.w, c.conflates)
		if (err == nil) != c.sound || err != nil && !errors.Is(err, errUnsound) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if r, more := feed(w, false, same); more || r.Seen != w.Updates || r.Last == 0 || r.P50 <= 0 || r.P999 < r.P99 {
		t.Errorf("more %v, %+v", more, r)
	}
}

func TestForeign(t *testing.T) {
	t.Parallel()
	w := workload{Keys: 3, Updates: 10, Lanes: 1}
	c := newChecker(w, false, func() {})
	value := make([]byte, valueSize)
	fill(value, 0, 0, 0)
	c.see([]byte(c.names[1]), value) // of another key
	c.see([]byte(c.names[0]), value[1:])
	value[24] ^= 1
	c.see([]byte(c.names[0]), value)
	if r := c.conclude(newTable().get); r.Foreign != 3 || r.Wrong != 3 || r.fault(w, true) == nil {
		t.Errorf("%+v", r)
	}
}

// Every key of a lane is its own.
func TestLanes(t *testing.T) {
	t.Parallel()
	w := workload{Keys: 103, Updates: 20_000, Lanes: 10}
	of := map[int]int{}
	for n := range w.total() {
		key := w.key(n)
		if lane, ok := of[key]; ok && lane != w.lane(n) || key < 0 || key >= w.Keys {
			t.Fatalf("key %d in lanes %d and %d", key, lane, w.lane(n))
		}
		of[key] = w.lane(n)
	}
	if len(of) != w.Keys {
		t.Errorf("%d keys", len(of))
	}
}
