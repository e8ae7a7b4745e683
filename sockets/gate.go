package sockets

import (
	"context"
	"sync"
)

// gate lets goroutines wait, with a context, for a condition that a mutex
// guards. It is a sync.Cond that a context can end.
//
// One token wakes one waiter. A waiter that was woken and leaves the condition
// true for others calls wake again, so that wake-ups are passed on along the
// chain; a token that nobody fetched wakes the next waiter for nothing, which
// only makes it look again.
type gate struct {
	token   chan struct{}
	waiters int // guarded by the mutex
}

func newGate() gate { return gate{token: make(chan struct{}, 1)} }

// wake wakes one waiter if there is any. The mutex must be held.
func (g *gate) wake() {
	if g.waiters > 0 {
		select {
		case g.token <- struct{}{}:
		default:
		}
	}
}

// wait releases mu, waits for a token, and takes mu again. It returns
// ErrClosed when done is closed first, and the context's error when that ends
// first.
//
// The waiter counts itself before it lets go of mu: a waker that takes mu next
// sees it and leaves a token, even if the waiter is not yet in its select.
func (g *gate) wait(ctx context.Context, mu *sync.Mutex, done <-chan struct{}) error {
	return g.waitWithin(ctx, mu, done, nil)
}

// waitWithin is wait, but no longer than a limit allows, if it is not nil: then
// it returns ErrTimeout.
func (g *gate) waitWithin(ctx context.Context, mu *sync.Mutex, done <-chan struct{}, l *limit) error {
	if ctx == noWait {
		return ErrWouldBlock
	}
	expired, err := l.start()
	if err != nil {
		return err
	}
	g.waiters++
	mu.Unlock()
	select {
	case <-g.token:
	case <-ctx.Done():
		err = ctx.Err()
	case <-expired:
		err = ErrTimeout
	case <-done:
		err = ErrClosed
	}
	mu.Lock()
	g.waiters--
	return err
}
