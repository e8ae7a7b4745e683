package recipes

import (
	"context"
	"errors"
	"time"

	"clustermap/chp"
)

var (
	// ErrLost says that a lock was lost: its lease was not renewed in time, or its key was deleted.
	ErrLost = errors.New("chp/recipes: the lock is lost")

	// ErrUnlocked says that a lock was given back.
	ErrUnlocked = errors.New("chp/recipes: the lock was given back")

	// ErrHeld says that others hold the lock.
	ErrHeld = errors.New("chp/recipes: the lock is held")

	// ErrClosed is returned after Close.
	ErrClosed = errors.New("chp/recipes: closed")
)

// Lock is a lock that is held, from a [Mutex], a [Semaphore] or an [Election]. It is held until
// Unlock, or until it is lost, for as long as its program lives.
//
// All methods are safe for concurrent use.
type Lock struct {
	queue *queue
	key   string
	with  *tenure       // its lease
	done  chan struct{} // closed when it is lost or given back
	won   chan struct{} // closed when it is the holder
	seen  chan struct{} // closed when the watch has reported the key, and won is closed if it is the holder by then
	ctx   context.Context
	stop  context.CancelFunc // ends ctx, with done

	// Guarded by queue.mu.
	placed bool // the watch has reported the key
	ticket int64
	err    error // why done is closed
}

// Token is the fencing token, higher than that of all holders before: see the documentation of
// the package. It is the sequence of an update, so it is positive.
func (l *Lock) Token() int64 {
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return l.ticket
}

// Key is the key in the map, which exists while the lock is held.
func (l *Lock) Key() string { return l.key }

// Held is the condition that the lock is held when the server orders an update. It makes the
// update and the check one step.
func (l *Lock) Held() chp.Condition { return chp.IfPresent().On(l.key) }

// Done returns a channel that is closed when the lock is lost or given back.
func (l *Lock) Done() <-chan struct{} { return l.done }

// Err returns nil while the lock is held, and then ErrLost, ErrUnlocked or ErrClosed. It looks at the clock: after a
// standstill of the program it returns ErrLost before Done is closed.
func (l *Lock) Err() error {
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	if l.err == nil && !time.Now().Before(l.Deadline()) {
		l.end(ErrLost)
	}
	return l.err
}

// Deadline is when the lock is lost unless its lease is renewed before: by this process's clock, and
// earlier than the server can let the key expire.
func (l *Lock) Deadline() time.Time { return l.with.Deadline() }

// Context returns a context that also ends when the lock does; its cause is then that of Err.
// The caller calls cancel.
func (l *Lock) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	stop := context.AfterFunc(l.ctx, func() { <-l.done; end(l.Err()) })
	return ctx, func() { stop(); end(nil) }
}

// Unlock gives the lock back, and returns when the server has ordered that. It returns ErrLost
// if the lock was lost before. After other errors the key is deleted as soon as that is possible, and
// nobody else has the lock before.
func (l *Lock) Unlock(ctx context.Context) error {
	q := l.queue
	q.mu.Lock()
	l.end(ErrUnlocked)
	err := l.err
	q.mu.Unlock()
	if err != ErrUnlocked {
		return err
	}
	if err = q.source.remove(ctx, l.key); err != nil {
		q.mu.Lock()
		q.forget(l)
		q.mu.Unlock()
	}
	return err
}

// end closes done, the first time. queue.mu must be held.
func (l *Lock) end(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	close(l.done)
	l.stop()
	delete(l.queue.own, l.key)
	if err == ErrLost {
		l.queue.forget(l)
	}
}

// win makes the lock held. queue.mu must be held.
func (l *Lock) win(ticket int64) {
	select {
	case <-l.won:
	default:
		l.ticket = ticket
		close(l.won)
	}
}
