package chp

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestTurnExcludes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	u := newTurn()
	count := 0 // guarded by u, which is what the race detector checks
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				if err := u.take(ctx, nil); err != nil {
					t.Error(err)
					return
				}
				count++
				u.give()
			}
		})
	}
	all.Wait()
	if count != 16000 {
		t.Errorf("counted %d", count)
	}
}

func TestTurnWaitEnds(t *testing.T) {
	t.Parallel()
	u := newTurn()
	must(t, u.take(context.Background(), nil))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := u.take(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	closed := make(chan struct{})
	close(closed)
	if err := u.take(context.Background(), closed); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	u.give()
	must(t, u.take(testContext(t), nil))
}
