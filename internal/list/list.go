// Package list is a doubly linked list through elements that are fields of its values, so
// that lists do not allocate, and a value can leave a list without being looked for.
package list

import "iter"

// Element is an element of a list. It is a field of the value to which Of points. The zero
// Element is in no list.
type Element[T any] struct {
	Of *T

	prev, next *Element[T]
	in         *List[T] // nil while it is in no list
}

// List is a list. The zero List is empty. It is for one goroutine at a time.
type List[T any] struct {
	head, tail *Element[T]
	n          int
}

// Len returns the number of values.
func (l *List[T]) Len() int { return l.n }

// Front returns the first value, or nil.
func (l *List[T]) Front() *T {
	if l.head == nil {
		return nil
	}
	return l.head.Of
}

// PushBack adds an element that is in no list behind the last.
func (l *List[T]) PushBack(e *Element[T]) { l.insert(e, l.tail, nil) }

// PushFront adds an element that is in no list before the first.
func (l *List[T]) PushFront(e *Element[T]) { l.insert(e, nil, l.head) }

func (l *List[T]) insert(e, prev, next *Element[T]) {
	e.in, e.prev, e.next = l, prev, next
	l.join(prev, e)
	l.join(e, next)
	l.n++
}

// join makes two elements neighbours. Without the first, the second is the head; without
// the second, the first is the tail.
func (l *List[T]) join(a, b *Element[T]) {
	if a == nil {
		l.head = b
	} else {
		a.next = b
	}
	if b == nil {
		l.tail = a
	} else {
		b.prev = a
	}
}

// In reports whether the element is in the list.
func (e *Element[T]) In(l *List[T]) bool { return e.in == l }

// Remove removes the element from its list, if it is in one.
func (e *Element[T]) Remove() {
	l := e.in
	if l == nil {
		return
	}
	l.join(e.prev, e.next)
	l.n--
	e.in, e.prev, e.next = nil, nil, nil
}

// Back returns the last value, or nil.
func (l *List[T]) Back() *T {
	if l.tail == nil {
		return nil
	}
	return l.tail.Of
}

// All yields the values in order. The value that was yielded last may be removed meanwhile,
// and the list must not change otherwise.
func (l *List[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for e := l.head; e != nil; {
			next := e.next
			if !yield(e.Of) {
				return
			}
			e = next
		}
	}
}

// Backward is All from the last value to the first.
func (l *List[T]) Backward() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for e := l.tail; e != nil; {
			prev := e.prev
			if !yield(e.Of) {
				return
			}
			e = prev
		}
	}
}
