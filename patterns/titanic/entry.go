package titanic

import (
	"time"

	"clustermap/internal/list"
)

// An entry describes a stored request, and later its reply, in memory.
type entry struct {
	// Immutable.
	id  UUID
	key uint64

	// Guarded by store.mu.
	kind kind
	size int                 // bytes of the stored message and of the entry; of a request they do not change
	at   time.Duration       // when the request or reply arrived, on the store's clock
	age  list.Element[entry] // in store.waiting or store.done

	// Guarded by dispatcher.mu.
	service  string // while it has no reply
	state    state
	queue    list.Element[entry] // in service.ready
	attempts int                 // number of attempts
	due      time.Duration       // when it is tried again, while it is in service.delayed
	cancel   func()              // cancels the running attempt
}

// state is the dispatcher's state of a request.
type state uint8

const (
	stateNone    state = iota // not added yet, or dropped
	stateReady                // in service.ready
	stateDelayed              // in service.delayed
	stateRunning              // an attempt is running
)

// newEntry returns a copy of e that can be in lists.
func newEntry(e entry) *entry {
	e.age.Of, e.queue.Of = &e, &e
	return &e
}
