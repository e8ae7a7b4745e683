package chp

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// Close ends a server of which Serve begins at that moment: all calls return, and
// Serve does not wait for the end of its context.
func TestServerCloseWhileServeBegins(t *testing.T) {
	t.Parallel()
	for range 200 {
		s, err := NewServer(ServerOptions{Logger: quiet()})
		must(t, err)
		must(t, s.Listen(testContext(t)))
		ctx := testContext(t)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Serve(ctx); err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("Serve: %v", err)
			}
		})
		for range 3 {
			wg.Go(func() { must(t, s.Close()) })
		}
		wg.Wait()
		if ctx.Err() != nil {
			t.Fatal("Serve went on, though the server was closed")
		}
	}
}

// A call of Serve that fails, here because its context has ended before, does not
// close the server under another call that serves.
func TestServeThatFailsLeavesTheOther(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for range 300 {
		s, err := NewServer(ServerOptions{Logger: quiet()})
		must(t, err)
		var wg sync.WaitGroup
		served := make(chan error, 1)
		ctx, stop := context.WithCancel(testContext(t))
		go func() { served <- s.Serve(ctx) }()
		wg.Go(func() { _ = s.Serve(ended) })
		wg.Wait()
		select {
		case <-s.Ready():
			s.state.Lock()
			phase := s.phase
			s.state.Unlock()
			stop()
			switch err := <-served; {
			case err == nil:
				if phase != phaseServing {
					t.Fatal("the server that serves was closed")
				}
			case !errors.Is(err, ErrClosed) && !errors.Is(err, ErrServing): // the other call served
				t.Fatalf("Serve: %v", err)
			}
		case err := <-served:
			stop()
			if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrServing) {
				t.Fatalf("Serve: %v", err)
			}
		}
	}
}
