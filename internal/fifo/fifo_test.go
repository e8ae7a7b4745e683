package fifo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueue compares random operations with a slice.
func TestQueue(t *testing.T) {
	t.Parallel()
	var r Queue[int]
	var model []int
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 100_000 {
		// In turns it tends to grow, beyond the buffer that an empty queue keeps, and to
		// shrink.
		grow := i/5000%2 == 0
		if len(model) > 0 && rng.IntN(4) > 0 != grow {
			if v := r.Pop(); v != model[0] {
				t.Fatalf("step %d: pop gives %d, want %d", i, v, model[0])
			}
			model = model[1:]
		} else {
			r.Push(i)
			model = append(model, i)
		}
		if i%700 == 0 {
			del := func(v int) bool { return v%3 == 0 }
			r.DeleteFunc(del)
			model = slices.DeleteFunc(model, del)
		}
		if r.Len() != len(model) {
			t.Fatalf("step %d: len %d, want %d", i, r.Len(), len(model))
		}
		if len(model) > 0 && r.Front() != model[0] {
			t.Fatalf("step %d: front %d, want %d", i, r.Front(), model[0])
		}
		if i%1000 == 0 {
			got := make([]int, r.Len())
			for j := range got {
				got[j] = *r.At(j)
			}
			if !slices.Equal(got, model) {
				t.Fatalf("step %d: %v, want %v", i, got, model)
			}
		}
	}
}

// TestQueueLetsGo: a popped item is not kept alive, and an empty queue keeps no
// large buffer.
func TestQueueLetsGo(t *testing.T) {
	t.Parallel()
	var r Queue[*int]
	for range 4 {
		r.Push(new(int))
	}
	r.Pop()
	if r.items[0] != nil {
		t.Error("a popped item is still there")
	}
	for range keep {
		r.Push(new(int))
	}
	for r.Len() > 0 {
		r.Pop()
	}
	if len(r.items) > keep {
		t.Errorf("an empty queue keeps room for %d items", len(r.items))
	}
	r.Push(new(int)) // and works on
	if r.Pop() == nil {
		t.Error("lost an item after giving up the buffer")
	}
}
