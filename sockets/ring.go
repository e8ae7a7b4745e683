package sockets

// ring is a first-in, first-out queue in a circular buffer, which grows as
// needed and is reused without allocation, unless it has grown large.
type ring[T any] struct {
	items []T // its length is zero or a power of two
	head  int
	count int
}

func (r *ring[T]) len() int { return r.count }

func (r *ring[T]) at(i int) *T { return &r.items[(r.head+i)&(len(r.items)-1)] }

func (r *ring[T]) push(v T) {
	if r.count == len(r.items) {
		grown := make([]T, max(4, 2*len(r.items)))
		for i := range r.count {
			grown[i] = *r.at(i)
		}
		r.items, r.head = grown, 0
	}
	r.count++
	*r.at(r.count - 1) = v
}

// pop removes and returns the oldest item; there must be one.
func (r *ring[T]) pop() T {
	p := r.at(0)
	v := *p
	var zero T
	*p = zero
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.count--
	if r.count == 0 && len(r.items) > keepRing {
		r.items, r.head = nil, 0
	}
	return v
}

// keepRing is the largest buffer that an empty ring keeps.
const keepRing = 256

func (r *ring[T]) front() T { return *r.at(0) }

// frontPointer gives access to the oldest item in place, until the next push.
func (r *ring[T]) frontPointer() *T { return r.at(0) }
