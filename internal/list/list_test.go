package list

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestListAgreesWithSlice moves values between two lists and two slices.
func TestListAgreesWithSlice(t *testing.T) {
	t.Parallel()
	type value struct {
		place Element[value]
		n     int
	}
	var lists [2]List[value]
	var want [2][]*value
	var all []*value
	for n := range 20 {
		v := &value{n: n}
		v.place.Of = v
		all = append(all, v)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		v, to := all[r.IntN(len(all))], r.IntN(2)
		v.place.Remove()
		v.place.Remove() // of no list: nothing
		for i := range want {
			want[i] = slices.DeleteFunc(want[i], func(w *value) bool { return w == v })
		}
		switch r.IntN(3) {
		case 0:
			lists[to].PushBack(&v.place)
			want[to] = append(want[to], v)
		case 1:
			lists[to].PushFront(&v.place)
			want[to] = slices.Insert(want[to], 0, v)
		}
		for i := range lists {
			l, w := &lists[i], want[i]
			back := slices.Collect(l.Backward())
			slices.Reverse(back)
			if got := slices.Collect(l.All()); !slices.Equal(got, w) || !slices.Equal(back, w) || l.Len() != len(w) {
				t.Fatalf("%v and %v, want %v", got, back, w)
			}
			if len(w) == 0 && (l.Front() != nil || l.Back() != nil) || len(w) > 0 && (l.Front() != w[0] || l.Back() != w[len(w)-1]) {
				t.Fatalf("front %v, back %v of %v", l.Front(), l.Back(), w)
			}
			for _, v := range all {
				if v.place.In(l) != slices.Contains(w, v) {
					t.Fatalf("whether %d is in list %d", v.n, i)
				}
			}
		}
	}
	for v := range lists[0].All() {
		v.place.Remove()
	}
	for v := range lists[1].Backward() {
		v.place.Remove()
	}
	if lists[0].Len()+lists[1].Len() != 0 {
		t.Error("values are left")
	}
}
