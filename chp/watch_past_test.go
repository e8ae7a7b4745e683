package chp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"clustermap/internal/loopback"
)

// TestWatchSinceWhileTheClientTakesASnapshot: the client comes to a server that has lost an update
// which the client has seen, so it takes a snapshot, while its watch still reports the past. The
// watch asks that server for the rest of the past, which is newer than the snapshot: the events add
// up to what the server has, and none of them goes back.
func TestWatchSinceWhileTheClientTakesASnapshot(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir, older := t.TempDir(), t.TempDir()
	o := ServerOptions{Host: loopback.Own(), Port: 5556}
	o.Log = openLog(t, dir)
	s, stop := serveUntil(t, o)
	since := s.Sequence()
	for i := range 300 {
		must(t, s.Set(ctx, fmt.Sprint("/big/", i), make([]byte, 100<<10)))
	}
	must(t, os.CopyFS(older, os.DirFS(dir)))
	must(t, s.Set(ctx, "/lost", []byte("1")))
	var by cable
	c := startClient(t, s, ClientOptions{Dial: by.dial, restless: true})
	must(t, c.Sync(ctx))
	w, err := c.WatchWith(ctx, WatchOptions{Since: since})
	must(t, err)
	defer w.Close()

	by.leave()
	stop()
	o.Log = openLog(t, older)
	s, _ = serveUntil(t, o)
	must(t, s.Set(ctx, "/key", []byte("1")))
	by.plug()
	must(t, c.Sync(ctx))
	must(t, s.Set(ctx, "/key", []byte("2")))
	must(t, c.Sync(ctx))
	if n := c.Stats().Syncs; n != 2 {
		t.Fatalf("%d snapshots", n)
	}
	model := map[string]string{}
	for model["/end"] == "" {
		e, err := w.Next(ctx)
		must(t, err)
		switch e.Op {
		case OpSet:
			model[string(e.Key)] = string(e.Value)
		case OpDelete:
			delete(model, string(e.Key))
		case OpSynced:
			must(t, s.Set(ctx, "/end", []byte("1")))
		}
	}
	if got := have(c); !maps.Equal(got, model) {
		t.Errorf("the events add up to %d keys and /key=%s, the client has %d and /key=%s", len(model), model["/key"], len(got), got["/key"])
	}
}

// TestWatchSinceWithoutServer: a watch that still reports the past can be read while there is no
// server, again and again, each time with a context that ends; it goes on when there is one.
func TestWatchSinceWithoutServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := ServerOptions{Host: loopback.Own(), Port: 5556}
	dir := t.TempDir()
	o.Log = openLog(t, dir)
	s, stop := serveUntil(t, o)
	since := s.Sequence()
	const updates = 300
	for i := range updates {
		must(t, s.Set(ctx, fmt.Sprint("/big/", i), make([]byte, 100<<10)))
	}
	c := startClient(t, s, ClientOptions{restless: true})
	w, err := c.WatchWith(ctx, WatchOptions{Since: since})
	must(t, err)
	defer w.Close()
	at := since
	next := func(ctx context.Context) (e Event, err error) {
		if e, err = w.Next(ctx); err == nil && e.Op == OpSet {
			if at++; e.Sequence != at {
				t.Fatalf("%d comes after %d", e.Sequence, at-1)
			}
		}
		return e, err
	}
	_, err = next(ctx)
	must(t, err)
	stop()
	eventually(t, "the client has lost its server", func() bool { return c.State() != StateActive })
	for failed := 0; failed < 3; {
		soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if _, err = next(soon); err != nil {
			failed++
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		cancel()
	}
	if at == since+updates {
		t.Fatal("all updates had come before")
	}
	o.Log = openLog(t, dir)
	serveUntil(t, o)
	for {
		e, err := next(ctx)
		must(t, err)
		if e.Op == OpSynced {
			break
		}
	}
	if at != since+updates {
		t.Errorf("the watch is synced at %d of %d", at-since, updates)
	}
}

// TestWatchCloseDuringACall: Close of a watch with options does not wait for the function that
// NextBatch calls, and a second goroutine that fetches events gets an error, as with other watches.
func TestWatchCloseDuringACall(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	since := s.Sequence()
	for range 3 {
		must(t, s.Set(ctx, "/key", []byte("1")))
	}
	c := startClient(t, s, ClientOptions{})
	must(t, c.Sync(ctx))
	for _, o := range []WatchOptions{{}, {Previous: true}, {Since: since}, {Since: since, Previous: true}} {
		w, err := c.WatchWith(ctx, o)
		must(t, err)
		calls := 0
		err = w.NextBatch(ctx, func(Event) bool {
			if _, err := w.Next(ctx); err == nil || calls == 0 && errors.Is(err, ErrClosed) {
				t.Errorf("%+v: a second goroutine gets %v", o, err)
			}
			must(t, w.Close())
			calls++
			return true
		})
		if calls == 0 || err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("%+v: %d calls, %v", o, calls, err)
		}
		if _, err := w.Next(ctx); !errors.Is(err, ErrClosed) {
			t.Errorf("%+v: then %v", o, err)
		}
	}
}
