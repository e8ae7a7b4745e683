package recipes

import (
	"context"
	"errors"
	"iter"
	"math"

	"clustermap/chp"
)

// Mutex is a lock that one program at a time holds. Those who wait get it in the order in which they came.
//
// All methods are safe for concurrent use. Each Lock is one of its own: two in the same program
// exclude each other, too.
type Mutex struct{ lock }

// Semaphore is a lock that several programs hold at a time.
type Semaphore struct{ lock }

// Election is a lock whose holder is the leader, and whose value others read.
type Election struct{ lock }

// lock is what the three have in common.
type lock struct {
	queue *queue
	slots int
}

func newLock(c *chp.Client, name string, slots int, o Options) (lock, error) {
	q, err := newQueue(c, name, o)
	return lock{q, slots}, err
}

// NewMutex returns the mutex of a name, such as /locks/nightly. Its keys are those below the name, /locks/nightly/…, which must be in the client's
// subtrees; nothing else may be there. The caller closes it before the client.
func NewMutex(c *chp.Client, name string, o Options) (*Mutex, error) {
	l, err := newLock(c, name, 1, o)
	return &Mutex{l}, err
}

// NewSemaphore returns the semaphore of a name, as NewMutex does, of which n hold at a time. All programs
// must give the same n.
func NewSemaphore(c *chp.Client, name string, n int, o Options) (*Semaphore, error) {
	if n < 1 {
		return nil, errSlots
	}
	l, err := newLock(c, name, n, o)
	return &Semaphore{l}, err
}

var errSlots = errors.New("chp/recipes: a semaphore needs at least one place")

// NewElection returns the election of a name, as NewMutex does.
func NewElection(c *chp.Client, name string, o Options) (*Election, error) {
	l, err := newLock(c, name, 1, o)
	return &Election{l}, err
}

// Lock waits for the mutex. The context is that of the wait only; to give the lock back, call Unlock. If
// the server is away for longer than the time to live, the place among those who wait is lost, and Lock takes
// another. At a server that knows no leases the error is chp.ErrNoLeases.
func (m *Mutex) Lock(ctx context.Context) (*Lock, error) { return m.acquire(ctx, nil, false) }

// TryLock returns ErrHeld instead of waiting for others.
func (m *Mutex) TryLock(ctx context.Context) (*Lock, error) { return m.acquire(ctx, nil, true) }

// Acquire waits for one of the places, as [Mutex.Lock] does.
func (s *Semaphore) Acquire(ctx context.Context) (*Lock, error) { return s.acquire(ctx, nil, false) }

// TryAcquire returns ErrHeld instead of waiting for others.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Lock, error) { return s.acquire(ctx, nil, true) }

// Campaign waits until this program is the leader, as [Mutex.Lock] does. Others see the value, such as an
// address; if it is empty, that is Options.Value.
func (e *Election) Campaign(ctx context.Context, value []byte) (*Lock, error) {
	if len(value) == 0 {
		value = nil
	}
	return e.acquire(ctx, value, false)
}

// Leader returns who is the leader, as far as this client knows. ok is false if nobody is known.
func (e *Election) Leader() (leader Holder, ok bool) {
	list, _ := e.queue.holders(e.queue.root, 1)
	if len(list) == 0 {
		return Holder{}, false
	}
	return list[0], true
}

// Leaders returns an iterator that yields the leader, and then each new one, until the context ends or the
// election is closed. It skips those that were replaced before it is asked for the next one. A leader
// without a successor is not reported as gone.
func (e *Election) Leaders(ctx context.Context) iter.Seq[Holder] {
	return func(yield func(Holder) bool) {
		for last := int64(0); ; {
			list, changed := e.queue.holders(e.queue.root, 1)
			if len(list) > 0 && list[0].Token != last {
				if last = list[0].Token; !yield(list[0]) {
					return
				}
				continue
			}
			if changed == nil {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Holders returns who holds the lock, as far as this client knows, the oldest first.
func (l *lock) Holders() []Holder {
	list, _ := l.queue.holders(l.queue.root, l.slots)
	return list
}

// Do waits for the lock, calls f with a context that ends when the lock is lost, and gives the lock back. It
// returns f's error, or ErrLost if the lock was lost.
func (l *lock) Do(ctx context.Context, f func(ctx context.Context, held *Lock) error) error {
	held, err := l.acquire(ctx, nil, false)
	if err != nil {
		return err
	}
	return held.do(ctx, f)
}

// do calls f while the lock is held, and gives it back.
func (l *Lock) do(ctx context.Context, f func(context.Context, *Lock) error) error {
	within, cancel := l.Context(ctx)
	defer cancel()
	err := f(within, l)
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer done()
	if lost := l.Unlock(leaving); lost == ErrLost || lost == ErrClosed {
		err = errors.Join(err, lost)
	}
	return err
}

// Close gives back what is held, which takes a second at most, and ends all calls. It returns nil.
func (l *lock) Close() error { return l.queue.close() }

func (l *lock) acquire(ctx context.Context, value []byte, try bool) (*Lock, error) {
	return l.queue.acquire(ctx, l.queue.root, l.slots, value, try)
}

// everybody is the number of places in a line where all hold.
const everybody = math.MaxInt
