package sockets

import (
	"sync"
	"testing"
	"time"
)

// events keeps the events of a monitor, for tests to wait for.
type events struct {
	mu   sync.Mutex
	all  []Event
	seen map[EventKind]int // how far events of a kind were waited for
	more chan struct{}
}

func newEvents() *events { return &events{seen: map[EventKind]int{}, more: make(chan struct{}, 1)} }

// tell is for Options.Monitor.
func (e *events) tell(event Event) {
	e.mu.Lock()
	e.all = append(e.all, event)
	e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// await returns the next event of the given kind. Those of other kinds stay to
// be waited for.
func (e *events) await(t testing.TB, kind EventKind) Event {
	t.Helper()
	timeout := time.After(hang)
	for {
		e.mu.Lock()
		for e.seen[kind] < len(e.all) {
			event := e.all[e.seen[kind]]
			e.seen[kind]++
			if event.Kind == kind {
				e.mu.Unlock()
				return event
			}
		}
		e.mu.Unlock()
		select {
		case <-e.more:
		case <-timeout:
			e.mu.Lock()
			defer e.mu.Unlock()
			t.Fatalf("no event %q among %v", kind, e.all)
		}
	}
}

// count returns how many events of the given kind there were.
func (e *events) count(kind EventKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, event := range e.all {
		if event.Kind == kind {
			n++
		}
	}
	return n
}
