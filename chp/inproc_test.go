package chp

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestInprocClose: over inproc the goroutine that receives updates is also the one that
// notices the end, which it must do even if updates come without a pause.
func TestInprocClose(t *testing.T) {
	t.Parallel()
	// flood sets keys until the function that it returns is called.
	flood := func(set func(ctx context.Context, key string, value []byte, opts ...SetOption) error) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		var setting sync.WaitGroup
		for i := range 4 {
			setting.Go(func() {
				for key := fmt.Sprintf("/%d", i); ctx.Err() == nil; {
					_ = set(ctx, key, []byte("value"))
				}
			})
		}
		return func() { cancel(); setting.Wait() }
	}
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		s := startServer(t, ServerOptions{Endpoints: []string{"inproc://" + t.Name()}, HeartbeatInterval: time.Hour})
		defer flood(s.Set)()
		for range 10 {
			c, err := NewClient(ClientOptions{Servers: []string{s.Endpoints().Snapshot}, HeartbeatTimeout: -1, Logger: quiet()})
			must(t, err)
			must(t, c.WaitActive(ctx))
			seen := c.Sequence()
			eventually(t, "the client follows", func() bool { return c.Sequence() > seen })
			must(t, c.Close())
		}
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		s, err := NewServer(ServerOptions{Endpoints: []string{"inproc://" + t.Name(), "tcp://127.0.0.1:*"}, Logger: quiet()})
		must(t, err)
		must(t, s.Listen(ctx))
		served := make(chan error, 1)
		go func() { served <- s.Serve(context.Background()) }()
		all := s.AllEndpoints()
		near := startClient(t, s, ClientOptions{Logger: quiet()})
		far, err := NewClient(ClientOptions{Servers: []string{all[1].Snapshot}, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
		must(t, err)
		defer far.Close()
		must(t, near.WaitActive(ctx))
		defer flood(near.Set)()
		for range 20 {
			_, err := far.SetSync(ctx, "/far", []byte("value"))
			must(t, err)
		}
		must(t, s.Close())
		must(t, <-served)
	})
}
