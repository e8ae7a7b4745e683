package chp

import (
	"context"
	"sync/atomic"
)

// turn is a mutex whose waiting a context can end. Taking it while it is free
// costs one atomic exchange, which is what an update that need not wait pays.
type turn struct {
	taken   atomic.Bool
	waiters atomic.Int32
	freed   chan struct{} // wakes one waiter, capacity 1
}

func newTurn() turn { return turn{freed: make(chan struct{}, 1)} }

// take takes the turn. It returns the context's error if that ends first, and
// ErrClosed if closed does.
//
// A waiter counts itself before it looks a last time, and the holder looks for
// waiters after it has let go: whichever comes second sees the other.
func (t *turn) take(ctx context.Context, closed <-chan struct{}) error {
	if t.taken.CompareAndSwap(false, true) {
		return nil
	}
	t.waiters.Add(1)
	defer t.waiters.Add(-1)
	for !t.taken.CompareAndSwap(false, true) {
		select {
		case <-t.freed:
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return ErrClosed
		}
	}
	return nil
}

// give lets the turn go.
func (t *turn) give() {
	t.taken.Store(false)
	if t.waiters.Load() > 0 {
		signal(t.freed)
	}
}
