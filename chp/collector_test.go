package chp

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// countingCollector counts the batches that the collector's goroutine receives.
type countingCollector struct {
	wire.Collector
	batches atomic.Int64
}

func (c *countingCollector) RecvBatch(ctx context.Context, b *sockets.Batch) error {
	err := c.Collector.RecvBatch(ctx, b)
	if err == nil {
		c.batches.Add(1)
	}
	return err
}

// TestCollectNow: an update that comes alone does not wake the collector's goroutine.
func TestCollectNow(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, err := NewServer(ServerOptions{Logger: quiet()})
	must(t, err)
	counting := &countingCollector{Collector: s.collector}
	s.collector = counting
	must(t, s.Listen(ctx))
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	defer func() {
		must(t, s.Close())
		must(t, <-served)
	}()
	<-s.Ready()
	eventually(t, "the collector runs", func() bool {
		s.collecting.Lock()
		defer s.collecting.Unlock()
		return s.collecting.on
	})
	c := startClient(t, s, ClientOptions{})
	for i := range 10 {
		s.collecting.lull.last.Store(int64(-time.Hour))
		_, err := c.SetSync(ctx, "/k", []byte(strconv.Itoa(i)))
		must(t, err)
	}
	if n := counting.batches.Load(); n > 0 {
		t.Errorf("the collector's goroutine received %d batches", n)
	}
	// While the collector has updates to handle, later ones wait behind them.
	s.collecting.Lock()
	must(t, c.Set(ctx, "/k", []byte("first")))
	eventually(t, "the collector's goroutine has it", func() bool { return counting.batches.Load() == 1 })
	s.collecting.Unlock()
	_, err = c.SetSync(ctx, "/k", []byte("last"))
	must(t, err)
	if v, _ := s.Get("/k"); string(v) != "last" {
		t.Errorf("the value is %q", v)
	}
}

// TestCollectOrder: the updates of a client stay in order and none is lost, whichever
// goroutines handle them at the server and in the replica.
func TestCollectOrder(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	replica := startClient(t, s, ClientOptions{WatchQueue: 64 << 20})
	must(t, replica.WaitActive(ctx))
	w, err := replica.Watch()
	must(t, err)
	defer w.Close()

	replica.writer.mu.Lock()
	following := replica.writer.session
	replica.writer.mu.Unlock()
	stop := make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	defer close(stop)
	others.Go(func() { // makes readers leave the work to the other goroutines now and then
		for both := []sync.Locker{&s.collecting, &following.live}; ; {
			for _, l := range both {
				select {
				case <-stop:
					return
				default:
				}
				l.Lock()
				runtime.Gosched()
				l.Unlock()
			}
		}
	})
	const clients = 3
	n := testenv.Rounds(3000)
	for k := range clients {
		c := startClient(t, s, ClientOptions{Subtrees: []string{"/none/"}})
		others.Go(func() {
			for i := range n {
				if err := c.Set(ctx, fmt.Sprintf("/%d", k), []byte(strconv.Itoa(i))); err != nil {
					t.Error(err)
					return
				}
				if i%50 == 0 {
					if err := c.Flush(ctx); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	next := map[string]int{}
	for seen := 0; seen < clients*n; {
		e, err := w.Next(ctx)
		must(t, err)
		if e.Op != OpSet {
			continue
		}
		if want := strconv.Itoa(next[string(e.Key)]); string(e.Value) != want {
			t.Fatalf("%s has the value %s, want %s", e.Key, e.Value, want)
		}
		next[string(e.Key)]++
		seen++
	}
}
