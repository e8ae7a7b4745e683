package majordomo

// element is an element of a list. It is a field of the value to which of points, so
// lists do not allocate.
type element[T any] struct {
	prev, next *element[T]
	in         *list[T] // nil while it is in no list
	of         *T
}

// list is a doubly linked list. The zero list is empty.
type list[T any] struct {
	head, tail *element[T]
	n          int
}

// front returns the first value, or nil.
func (l *list[T]) front() *T {
	if l.head == nil {
		return nil
	}
	return l.head.of
}

func (l *list[T]) pushBack(e *element[T]) {
	e.in, e.prev, e.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.next = e
	} else {
		l.head = e
	}
	l.tail = e
	l.n++
}

func (l *list[T]) pushFront(e *element[T]) {
	e.in, e.prev, e.next = l, nil, l.head
	if l.head != nil {
		l.head.prev = e
	} else {
		l.tail = e
	}
	l.head = e
	l.n++
}

// remove removes an element from its list, if it is in one.
func (e *element[T]) remove() {
	l := e.in
	if l == nil {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.tail = e.prev
	}
	l.n--
	e.in, e.prev, e.next = nil, nil, nil
}
