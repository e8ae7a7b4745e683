package sockets

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRing compares random operations with a slice.
func TestRing(t *testing.T) {
	t.Parallel()
	var r ring[int]
	var model []int
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 100_000 {
		// In turns it tends to grow, beyond what an empty ring keeps, and to
		// shrink.
		grow := i/5000%2 == 0
		if len(model) > 0 && rng.IntN(4) > 0 != grow {
			if v := r.pop(); v != model[0] {
				t.Fatalf("step %d: pop gives %d, want %d", i, v, model[0])
			}
			model = model[1:]
		} else {
			r.push(i)
			model = append(model, i)
		}
		if r.len() != len(model) {
			t.Fatalf("step %d: len %d, want %d", i, r.len(), len(model))
		}
		if len(model) > 0 && (r.front() != model[0] || *r.frontPointer() != model[0]) {
			t.Fatalf("step %d: front %d, want %d", i, r.front(), model[0])
		}
		if i%1000 == 0 {
			got := make([]int, r.len())
			for j := range got {
				got[j] = *r.at(j)
			}
			if !slices.Equal(got, model) {
				t.Fatalf("step %d: %v, want %v", i, got, model)
			}
		}
	}
}

// TestRingLetsGo: a popped item is not kept alive, and an empty ring keeps no
// large buffer.
func TestRingLetsGo(t *testing.T) {
	t.Parallel()
	var r ring[*int]
	for range 4 {
		r.push(new(int))
	}
	r.pop()
	if r.items[0] != nil {
		t.Error("a popped item is still there")
	}
	for range keepRing {
		r.push(new(int))
	}
	for r.len() > 0 {
		r.pop()
	}
	if len(r.items) > keepRing {
		t.Errorf("an empty ring keeps room for %d items", len(r.items))
	}
	r.push(new(int)) // and works on
	if r.pop() == nil {
		t.Error("lost an item after giving up the buffer")
	}
}
