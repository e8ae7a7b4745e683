package sockettest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

// Events keeps the events of a monitor, each of a kind, for tests to wait for.
type Events[E any, K comparable] struct {
	kind func(E) K
	mu   sync.Mutex
	all  []E
	seen map[K]int // how far events of a kind were waited for
	more chan struct{}
}

// NewEvents returns no events yet.
func NewEvents[E any, K comparable](kind func(E) K) *Events[E, K] {
	return &Events[E, K]{kind: kind, seen: map[K]int{}, more: make(chan struct{}, 1)}
}

// Tell is for Options.Monitor.
func (e *Events[E, K]) Tell(event E) {
	e.mu.Lock()
	e.all = append(e.all, event)
	e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// Await returns the next event of the given kind. Those of other kinds stay to
// be waited for.
func (e *Events[E, K]) Await(t testing.TB, kind K) E {
	t.Helper()
	timeout := time.After(testenv.Hang)
	for {
		e.mu.Lock()
		for e.seen[kind] < len(e.all) {
			event := e.all[e.seen[kind]]
			e.seen[kind]++
			if e.kind(event) == kind {
				e.mu.Unlock()
				return event
			}
		}
		e.mu.Unlock()
		select {
		case <-e.more:
		case <-timeout:
			t.Fatalf("no event %v among %v", kind, e.All())
		}
	}
}

// All returns the events so far.
func (e *Events[E, K]) All() []E {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// Kinds returns the kinds of the events so far.
func (e *Events[E, K]) Kinds() (kinds []K) {
	for _, event := range e.All() {
		kinds = append(kinds, e.kind(event))
	}
	return kinds
}

// Count returns how many events of the given kind there were.
func (e *Events[E, K]) Count(kind K) (n int) {
	for _, k := range e.Kinds() {
		if k == kind {
			n++
		}
	}
	return n
}
