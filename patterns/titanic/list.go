package titanic

import "time"

// An entry describes a stored request, and later its reply, in memory.
type entry struct {
	// Immutable.
	id  UUID
	key uint64

	// Guarded by store.mu.
	kind kind
	size int           // bytes of the stored message and of the entry
	at   time.Duration // when the request or reply arrived, on the store's clock
	age  link          // in store.waiting or store.done

	// Guarded by dispatcher.mu.
	service  string // while it has no reply
	state    state
	queue    link          // in service.ready
	attempts int           // number of attempts
	due      time.Duration // when it is tried again, while it is in service.delayed
	place    int           // index in service.delayed
	cancel   func()        // cancels the running attempt
}

// state is the dispatcher's state of a request.
type state uint8

const (
	stateNone    state = iota // not added yet, or dropped
	stateReady                // in service.ready
	stateDelayed              // in service.delayed
	stateRunning              // an attempt is running
)

// link has an entry's neighbours in a list.
type link struct{ prev, next *entry }

// A list is a doubly linked list through one of the links of its entries.
type list struct {
	link        func(*entry) *link
	first, last *entry
	n           int
}

func (l *list) pushBack(e *entry) {
	*l.link(e) = link{prev: l.last}
	if l.last == nil {
		l.first = e
	} else {
		l.link(l.last).next = e
	}
	l.last = e
	l.n++
}

func (l *list) pushFront(e *entry) {
	*l.link(e) = link{next: l.first}
	if l.first == nil {
		l.last = e
	} else {
		l.link(l.first).prev = e
	}
	l.first = e
	l.n++
}

func (l *list) remove(e *entry) {
	k := l.link(e)
	if k.prev == nil {
		l.first = k.next
	} else {
		l.link(k.prev).next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		l.link(k.next).prev = k.prev
	}
	*k = link{}
	l.n--
}

func byAge(e *entry) *link   { return &e.age }
func byQueue(e *entry) *link { return &e.queue }
