package chp

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// TestSyncHasWhatOthersHaveSet: after Sync a replica has what another client's SetSync has set,
// whether it has the whole map or a subtree that is not the one that changes most, over tcp and
// inproc; without waiting for a heartbeat.
func TestSyncHasWhatOthersHaveSet(t *testing.T) {
	t.Parallel()
	for i, subtrees := range [][]string{nil, {"/b/"}, {"/b/1", "/c/"}} {
		for _, endpoint := range []string{"tcp://127.0.0.1:0", fmt.Sprint("inproc://sync-has-", i)} {
			t.Run(fmt.Sprint(endpoint, subtrees), func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				s := startServer(t, ServerOptions{Endpoints: []string{endpoint}, HeartbeatInterval: hang})
				writer := startClient(t, s, ClientOptions{HeartbeatTimeout: 2 * hang})
				reader := startClient(t, s, ClientOptions{HeartbeatTimeout: 2 * hang, Subtrees: subtrees})
				for i := range 100 {
					seq, err := writer.SetSync(ctx, "/b/1", fmt.Appendf(nil, "%d", i))
					must(t, err)
					value, ok, err := reader.GetSync(ctx, "/b/1")
					must(t, err)
					if !ok || string(value) != fmt.Sprint(i) {
						t.Fatalf("after Sync the value is %q, %v, want %d", value, ok, i)
					}
					must(t, reader.WaitFor(ctx, seq))
					seq, err = writer.SetSync(ctx, "/a", []byte("outside"))
					must(t, err)
					must(t, reader.Sync(ctx))
					if got := reader.Sequence(); got < seq {
						t.Fatalf("after Sync the replica is at %d, and the map was at %d", got, seq)
					}
				}
			})
		}
	}
}

// Many calls at once, while others write.
func TestSyncFromManyGoroutines(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	writer, reader := startClient(t, s, ClientOptions{}), startClient(t, s, ClientOptions{})
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			key := fmt.Sprint("/", g)
			for i := range 50 {
				value := fmt.Sprint(i)
				if _, err := writer.SetSync(ctx, key, []byte(value)); err != nil {
					t.Error(err)
				}
				if got, _, err := reader.GetSync(ctx, key); err != nil || string(got) != value {
					t.Errorf("%s: %q, %v, want %q", key, got, err, value)
				}
			}
		})
	}
	all.Wait()
}

// TestSyncBesideHistory: Sync ends although the connection has no room for its answer behind those to
// other questions.
func TestSyncBesideHistory(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{History: 10, HistoryBytes: 64 << 20, MaxValueSize: 4 << 20})
	for range 10 {
		must(t, s.Set(ctx, "/big", make([]byte, 4<<20)))
	}
	c := startClient(t, s, ClientOptions{})
	must(t, c.Sync(ctx))
	done := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := c.History(ctx, "/big"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 100 {
		must(t, c.Sync(ctx))
	}
	close(done)
	asking.Wait()
}

// A heartbeat tells a client of a subtree in which nothing changes how far it has come.
func TestWaitForWithoutUpdates(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{HeartbeatInterval: 10 * time.Millisecond})
	c := startClient(t, s, ClientOptions{Subtrees: []string{"/quiet/"}})
	must(t, c.WaitActive(ctx))
	before := c.Sequence()
	must(t, s.Set(ctx, "/loud", []byte("1")))
	must(t, c.WaitFor(ctx, before+1))
	if got := c.Sequence(); got != before+1 {
		t.Errorf("the client is at %d, the server at %d", got, before+1)
	}
}

// A server that may not say that it has all waits, and the client with it.
func TestSyncWaitsWhileTheServerHandsOver(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	must(t, c.Sync(ctx))
	for range 3 {
		s.sequencer.Halt(true)
		returned := testenv.Blocked(t, "chp.(*Client).Sync", func() error { return c.Sync(ctx) })
		s.sequencer.Halt(false)
		must(t, <-returned)
	}
}

// Calls wait for a server, go on at the next one, and end with the client.
func TestSyncWithoutServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := ServerOptions{Host: loopback.Own(), Port: 5556}
	s, stop := serveUntil(t, o)
	c := startClient(t, s, ClientOptions{})
	must(t, c.Sync(ctx))
	s.sequencer.Halt(true) // so that the question is asked and not answered
	returned := testenv.Blocked(t, "chp.(*Client).Sync", func() error { return c.Sync(ctx) })
	stop()
	again := testenv.Blocked(t, "chp.(*Client).Sync", func() error { return c.Sync(ctx) })
	_, stop = serveUntil(t, o)
	must(t, <-returned)
	must(t, <-again)
	stop()
	waits := testenv.Blocked(t, "chp.(*Client).WaitFor", func() error { return c.WaitFor(ctx, 1<<61) })
	returned = testenv.Blocked(t, "chp.(*Client).Sync", func() error { return c.Sync(ctx) })
	must(t, c.Close())
	for _, err := range []error{<-waits, <-returned, c.Sync(ctx), c.WaitFor(ctx, 1<<61)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("a closed client: %v", err)
		}
	}
}

// A server of another implementation cannot answer: Sync says so at once. WaitFor needs none.
func TestSyncAtAnotherImplementation(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c, err := NewClient(ClientOptions{Servers: []string{s.name()}, HeartbeatTimeout: hang, SyncTimeout: hang, Logger: quiet()})
	must(t, err)
	defer c.Close()
	early := testenv.Blocked(t, "chp.(*Client).Sync", func() error { return c.Sync(ctx) })
	s.answer(7, pub{key: "/a", seq: 7, value: "1"})
	for _, err := range []error{<-early, c.Sync(ctx)} {
		if !errors.Is(err, ErrNoSync) {
			t.Errorf("Sync returned %v", err)
		}
	}
	must(t, c.WaitFor(ctx, 7))
	s.nobodyAsks()
}

// BenchmarkSync: 64 goroutines of one client.
func BenchmarkSync(b *testing.B) {
	s := startServer(b, ServerOptions{})
	c := startClient(b, s, ClientOptions{})
	ctx := testContext(b)
	must(b, c.Sync(ctx))
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			must(b, c.Sync(ctx))
		}
	})
}
