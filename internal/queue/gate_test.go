package queue

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// semaphore is the plainest user of a gate.
type semaphore struct {
	mu   sync.Mutex
	gate Gate
	n    int
}

func (s *semaphore) acquire(ctx context.Context, done <-chan struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.n == 0 {
		if err := s.gate.Wait(ctx, &s.mu, done, nil); err != nil {
			return err
		}
	}
	s.n--
	if s.n > 0 {
		s.gate.Wake()
	}
	return nil
}

func (s *semaphore) release(n int) {
	s.mu.Lock()
	s.n += n
	s.gate.Wake()
	s.mu.Unlock()
}

// TestGate has many goroutines wait, be woken, and give up, in all orders: no
// wake-up may be lost.
func TestGate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := semaphore{}
	const workers, rounds = 16, 2000
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				if err := s.acquire(ctx, nil); err != nil {
					t.Errorf("a wake-up was lost: %v", err)
					return
				}
			}
		})
		// These give up at once, perhaps with a token that they were meant to
		// get: it must not be lost for the others.
		wg.Go(func() {
			for range rounds {
				short, cancel := context.WithCancel(ctx)
				go cancel()
				if s.acquire(short, nil) == nil {
					s.release(1)
				}
			}
		})
	}
	for range workers * rounds / 4 {
		s.release(4)
	}
	wg.Wait()
	if s.n != 0 || s.gate.waiters != 0 {
		t.Errorf("%d left, %d wait", s.n, s.gate.waiters)
	}
}

func TestGateEnds(t *testing.T) {
	t.Parallel()
	s := semaphore{}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.acquire(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	done := make(chan struct{})
	close(done)
	if err := s.acquire(context.Background(), done); !errors.Is(err, ErrClosed) {
		t.Errorf("with done closed: %v", err)
	}
	if s.gate.waiters != 0 {
		t.Errorf("%d still count as waiting", s.gate.waiters)
	}
}
