package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"clustermap/internal/wake"
)

// Gate lets goroutines wait, with a context, for a condition that a mutex
// guards. It is a sync.Cond whose Wait can end without a signal.
//
// One token wakes one waiter. A waiter that was woken and leaves the condition
// true for others calls Wake again, so that wake-ups are passed on along the
// chain; a token that no waiter fetched wakes the next one for nothing, which only makes
// it look again.
//
// The zero Gate is ready to use, and costs nothing before the first wait. The mutex guards it.
type Gate struct {
	token   chan struct{} // capacity 1; nil before the first waiter
	waiters int
}

// Waiters returns the number of waiting goroutines. The mutex must be held.
func (g *Gate) Waiters() int { return g.waiters }

// Wake wakes one waiter if there is any. The mutex must be held.
func (g *Gate) Wake() {
	if g.waiters > 0 {
		wake.Signal(g.token)
	}
}

// WakeAll wakes all waiters. It is for a change that does not concern each of them, where
// one of the others could take the only token. The mutex must be held.
func (g *Gate) WakeAll() {
	if g.waiters > 0 && g.token != nil { // nil: those that wait were all woken just before
		close(g.token)
		g.token = nil
	}
}

// Wait releases mu, waits for a token, and takes mu again. It returns the
// context's error when that ends first, ErrTimeout when the limit is reached
// first, if l is not nil, and ErrClosed when done is closed first. With NoWait it
// returns ErrWouldBlock at once, and keeps mu.
func (g *Gate) Wait(ctx context.Context, mu sync.Locker, done <-chan struct{}, l *Limit) error {
	if ctx == NoWait {
		return ErrWouldBlock
	}
	expired, err := l.start()
	if err == nil {
		err = g.Sleep(mu, ctx.Done(), done, expired)
	}
	if err == errGone {
		err = ctx.Err()
	}
	return err
}

// errGone is the error of Sleep when gone is closed.
var errGone = errors.New("queue: gone")

// Sleep is Wait for callers without a context. It returns an error when one of
// the channels is closed or has a value: ErrTimeout for expired, ErrClosed for
// done, and another one for gone. Each of them may be nil.
//
// The waiter counts itself before it unlocks mu: a waker that takes mu next sees it and
// leaves a token, even if the waiter is not yet in its select.
func (g *Gate) Sleep(mu sync.Locker, gone, done <-chan struct{}, expired <-chan time.Time) (err error) {
	if g.token == nil {
		g.token = make(chan struct{}, 1)
	}
	g.waiters++
	token := g.token
	mu.Unlock()
	select {
	case <-token:
	case <-gone:
		err = errGone
	case <-expired:
		err = ErrTimeout
	case <-done:
		err = ErrClosed
	}
	mu.Lock()
	g.waiters--
	return err
}
