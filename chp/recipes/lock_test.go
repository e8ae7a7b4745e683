package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"
)

func newMutex(t testing.TB, s *chp.Server, o Options) (*Mutex, *chp.Client) {
	t.Helper()
	c := startClient(t, s.Endpoints().Snapshot)
	m, err := NewMutex(c, "/l/m", o)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return m, c
}

// Programs get a mutex one at a time, in the order in which they came, and with growing tokens.
func TestMutexIsFair(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t)
	const members = 5
	first, _ := newMutex(t, s, Options{})
	held, err := first.Lock(ctx)
	must(t, err)
	var mu sync.Mutex
	var order []int
	var waiting sync.WaitGroup
	tokens := []int64{held.Token()}
	for i := range members {
		m, _ := newMutex(t, s, Options{})
		waiting.Go(func() {
			err := m.Do(ctx, func(_ context.Context, l *Lock) error {
				mu.Lock()
				defer mu.Unlock()
				order, tokens = append(order, i), append(tokens, l.Token())
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		eventually(t, "it waits", func() bool { return places(s) == i+2 })
	}
	if _, err := first.TryLock(ctx); !errors.Is(err, ErrHeld) {
		t.Errorf("TryLock: %v", err)
	}
	must(t, held.Unlock(ctx))
	waiting.Wait()
	if !slices.IsSorted(order) || len(order) != members || !slices.IsSorted(tokens) {
		t.Errorf("order %v, tokens %v", order, tokens)
	}
	if !errors.Is(held.Err(), ErrUnlocked) {
		t.Error(held.Err())
	}
	eventually(t, "no key is left", func() bool { return places(s) == 0 })
	again, err := first.TryLock(ctx)
	must(t, err)
	if again.Token() <= tokens[members] {
		t.Errorf("token %d after %v", again.Token(), tokens)
	}
}

// A lock is renewed for longer than its time to live, which publishes nothing, and a deletion of its key
// ends it at once.
func TestLockLasts(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t)
	m, c := newMutex(t, s, Options{TTL: 5 * time.Second})
	l, err := m.Lock(ctx)
	must(t, err)
	sequence, deadline := s.Sequence(), l.Deadline()
	eventually(t, "it was renewed", func() bool { return l.Deadline().After(deadline) })
	if n := s.Sequence() - sequence; n != 0 {
		t.Errorf("%d updates were published", n)
	}
	if holders := m.Holders(); len(holders) != 1 || holders[0].Token != l.Token() || holders[0].Key != l.Key() {
		t.Errorf("%+v", holders)
	}
	must(t, l.Err())
	_, err = c.SetIf(ctx, "/l/result", []byte("1"), l.Held())
	must(t, err)
	within, cancel := l.Context(ctx)
	defer cancel()
	must(t, s.Delete(ctx, l.Key()))
	<-l.Done()
	<-within.Done()
	if l.Err() != ErrLost || context.Cause(within) != ErrLost {
		t.Errorf("%v, %v", l.Err(), context.Cause(within))
	}
	conflict := (*chp.ConflictError)(nil)
	if _, err = c.SetIf(ctx, "/l/result", []byte("2"), l.Held()); !errors.As(err, &conflict) {
		t.Errorf("set without the lock: %v", err)
	}
	if err := l.Unlock(ctx); err != ErrLost {
		t.Error(err)
	}
}

// A wait that is given up leaves no key, and those who wait behind go on.
func TestWaitIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t)
	a, _ := newMutex(t, s, Options{})
	b, _ := newMutex(t, s, Options{})
	c, _ := newMutex(t, s, Options{})
	held, err := a.Lock(ctx)
	must(t, err)
	waiting, stop := context.WithCancel(ctx)
	given := testenv.Blocked(t, "acquire", func() error { _, err := b.Lock(waiting); return err })
	eventually(t, "it waits", func() bool { return places(s) == 2 })
	next := testenv.Blocked(t, "acquire", func() error { _, err := c.Lock(ctx); return err })
	eventually(t, "it waits, too", func() bool { return places(s) == 3 })
	stop()
	if err := <-given; err != context.Canceled {
		t.Error(err)
	}
	eventually(t, "its key is gone", func() bool { return places(s) == 2 })
	must(t, held.Unlock(ctx))
	must(t, <-next)
}

// No more than its number hold a semaphore.
func TestSemaphore(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t)
	const places, members, rounds = 3, 8, 10
	var held, most atomic.Int64
	var working sync.WaitGroup
	for range members {
		m, err := NewSemaphore(startClient(t, s.Endpoints().Snapshot), "/l/s", places, Options{})
		must(t, err)
		t.Cleanup(func() { must(t, m.Close()) })
		working.Go(func() {
			for range rounds {
				err := m.Do(ctx, func(context.Context, *Lock) error {
					n := held.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					held.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	if n := most.Load(); n > places {
		t.Errorf("%d held it", n)
	}
	m, err := NewSemaphore(startClient(t, s.Endpoints().Snapshot), "/l/s", 2, Options{})
	must(t, err)
	defer m.Close()
	for range 2 {
		_, err = m.TryAcquire(ctx)
		must(t, err)
	}
	if _, err = m.TryAcquire(ctx); !errors.Is(err, ErrHeld) {
		t.Error(err)
	}
	if _, err := NewSemaphore(nil, "/l/s", 0, Options{}); err == nil {
		t.Error("a semaphore without places")
	}
}

// Others see the leader and its value, and the next one.
func TestElection(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t)
	var elections []*Election
	for range 3 {
		e, err := NewElection(startClient(t, s.Endpoints().Snapshot), "/l/e", Options{})
		must(t, err)
		t.Cleanup(func() { must(t, e.Close()) })
		elections = append(elections, e)
	}
	if _, ok := elections[2].Leader(); ok {
		t.Error("a leader")
	}
	first, err := elections[0].Campaign(ctx, []byte("first"))
	must(t, err)
	second := testenv.Blocked(t, "acquire", func() error { _, err := elections[1].Campaign(ctx, []byte("second")); return err })
	var seen []string
	for leader := range elections[2].Leaders(ctx) {
		if seen = append(seen, string(leader.Value)); len(seen) == 2 {
			break
		}
		must(t, first.Unlock(ctx))
	}
	must(t, <-second)
	if fmt.Sprint(seen) != "[first second]" {
		t.Error(seen)
	}
	eventually(t, "the first sees the second", func() bool {
		leader, ok := elections[0].Leader()
		return ok && string(leader.Value) == "second"
	})
}

// Close gives back what is held, and ends what waits; so does Close of the client.
func TestClose(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t)
	a, _ := newMutex(t, s, Options{})
	b, c := newMutex(t, s, Options{})
	held, err := a.Lock(ctx)
	must(t, err)
	next := testenv.Blocked(t, "acquire", func() error { _, err := b.Lock(ctx); return err })
	must(t, a.Close())
	if held.Err() != ErrClosed {
		t.Error(held.Err())
	}
	must(t, <-next)
	if _, err := a.Lock(ctx); err != ErrClosed {
		t.Error(err)
	}
	must(t, c.Close())
	if _, err := b.Lock(ctx); !errors.Is(err, chp.ErrClosed) {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	c := startClient(t, startServer(t).Endpoints().Snapshot)
	wrong := (*chp.OptionError)(nil)
	if _, err := NewMutex(c, "/l/m", Options{TTL: time.Millisecond}); !errors.As(err, &wrong) || wrong.Field != "TTL" {
		t.Error(err)
	}
	if _, err := NewMutex(c, "/elsewhere", Options{}); !errors.Is(err, chp.ErrOutsideSubtrees) {
		t.Error(err)
	}
	if _, err := NewPool(c, "/l/p", 0, Options{}); err == nil {
		t.Error("a pool without shards")
	}
}
