package queue

import (
	"context"
	"sync"
)

// Gate lets goroutines wait, with a context, for a condition that a mutex
// guards. It is a sync.Cond whose Wait can end without a signal.
//
// One token wakes one waiter. A waiter that was woken and leaves the condition
// true for others calls Wake again, so that wake-ups are passed on along the
// chain; a token that nobody fetched wakes the next waiter for nothing, which
// only makes it look again.
type Gate struct {
	token   chan struct{}
	waiters int // guarded by the mutex
}

// NewGate returns a gate at which nobody waits.
func NewGate() Gate { return Gate{token: make(chan struct{}, 1)} }

// Waiters returns how many goroutines wait. The mutex must be held.
func (g *Gate) Waiters() int { return g.waiters }

// Wake wakes one waiter if there is any. The mutex must be held.
func (g *Gate) Wake() {
	if g.waiters > 0 {
		select {
		case g.token <- struct{}{}:
		default:
		}
	}
}

// Wait releases mu, waits for a token, and takes mu again. It returns the
// context's error when that ends first, ErrTimeout when the limit is reached
// first, if l is not nil, and ErrClosed when done is closed first. With NoWait it
// returns ErrWouldBlock at once, and keeps mu.
//
// The waiter counts itself before it lets go of mu: a waker that takes mu next
// sees it and leaves a token, even if the waiter is not yet in its select.
func (g *Gate) Wait(ctx context.Context, mu *sync.Mutex, done <-chan struct{}, l *Limit) error {
	if ctx == NoWait {
		return ErrWouldBlock
	}
	expired, err := l.Start()
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
