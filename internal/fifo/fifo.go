// Package fifo is a queue in a circular buffer.
package fifo

// Queue is a first-in, first-out queue in a circular buffer, which grows as
// needed and is reused without allocation, unless it has grown large. The zero
// Queue is empty and ready for use.
type Queue[T any] struct {
	items []T // its length is zero or a power of two
	head  int
	count int
}

// keep is the largest buffer that an empty queue keeps, in items.
const keep = 256

// Len returns the number of items.
func (r *Queue[T]) Len() int { return r.count }

// At returns item i in place, counted from the oldest. The pointer is valid until
// the next Push or Pop.
func (r *Queue[T]) At(i int) *T { return &r.items[(r.head+i)&(len(r.items)-1)] }

// Front returns the oldest item; there must be one.
func (r *Queue[T]) Front() T { return *r.At(0) }

// Push adds an item behind the others.
func (r *Queue[T]) Push(v T) {
	if r.count == len(r.items) {
		r.grow()
	}
	r.count++
	*r.At(r.count - 1) = v
}

// PushFront adds an item before the others, where Pop takes it next.
func (r *Queue[T]) PushFront(v T) {
	if r.count == len(r.items) {
		r.grow()
	}
	r.head = (r.head - 1) & (len(r.items) - 1)
	r.count++
	*r.At(0) = v
}

func (r *Queue[T]) grow() {
	grown := make([]T, max(4, 2*len(r.items)))
	for i := range r.count {
		grown[i] = *r.At(i)
	}
	r.items, r.head = grown, 0
}

// DeleteFunc removes the items for which del returns true.
func (r *Queue[T]) DeleteFunc(del func(T) bool) {
	for range r.count {
		if v := r.Pop(); !del(v) {
			r.Push(v)
		}
	}
}

// Pop removes and returns the oldest item; there must be one.
func (r *Queue[T]) Pop() T {
	p := r.At(0)
	v := *p
	var zero T
	*p = zero
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.count--
	if r.count == 0 && len(r.items) > keep {
		r.items, r.head = nil, 0
	}
	return v
}
