package chp

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/internal/loopback"
)

// eventsUntil returns the texts of the events up to one with an operation.
func eventsUntil(t testing.TB, w *Watch, last Op) (all []string) {
	t.Helper()
	for {
		e, err := w.Next(testContext(t))
		must(t, err)
		text := fmt.Sprintf("%v %s=%s", e.Op, e.Key, e.Value)
		if e.Previous != nil {
			text += fmt.Sprintf(" before %s", e.Previous)
		}
		if all = append(all, text); e.Op == last {
			return all
		}
	}
}

// TestWatchSince: what came after a sequence, deletions among it, then synced, then the rest; of a
// server and of a client, of all keys and of a subtree.
func TestWatchSince(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"server", "client"} {
		t.Run(name, func(t *testing.T) { testWatchSince(t, name == "server") })
	}
}

func testWatchSince(t *testing.T, own bool) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	writer := startClient(t, s, ClientOptions{})
	set := func(key, value string) int64 {
		t.Helper()
		seq, err := writer.SetSync(ctx, key, []byte(value))
		must(t, err)
		return seq
	}
	set("/a/1", "before")
	since := set("/b/1", "before")
	set("/a/1", "x")
	set("/a/2", "y")
	set("/b/2", "z")
	_, err := writer.DeleteSync(ctx, "/a/2")
	must(t, err)
	set("/a/1", "w")
	c := startClient(t, s, ClientOptions{})
	watch := func(o WatchOptions) (*Watch, error) { return c.WatchWith(ctx, o) }
	if own {
		watch = s.WatchWith
	}
	w, err := watch(WatchOptions{Since: since, Subtrees: []string{"/a/"}, Previous: true})
	must(t, err)
	part, err := watch(WatchOptions{Since: since})
	must(t, err)
	got := fmt.Sprint(eventsUntil(t, w, OpSynced))
	if want := "[set /a/1=x set /a/2=y delete /a/2= before y set /a/1=w before x synced =]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(eventsUntil(t, part, OpSynced)), "[set /a/1=x set /a/2=y set /b/2=z delete /a/2= set /a/1=w synced =]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, w := range []*Watch{w, part} {
		defer w.Close()
	}
	_, err = watch(WatchOptions{Since: since - 1000})
	compacted := (*CompactedError)(nil)
	if !errors.As(err, &compacted) || !errors.Is(err, ErrCompacted) || compacted.Since != since-1000 || compacted.Oldest >= since {
		t.Errorf("before the first sequence: %v", err)
	}
	w, err = watch(WatchOptions{Since: compacted.Oldest})
	must(t, err)
	if got := len(eventsUntil(t, w, OpSynced)); got != 8 {
		t.Errorf("since the oldest one %d events", got)
	}
	must(t, w.Close())
	if _, err := w.Next(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed watch: %v", err)
	}
	if _, err = watch(WatchOptions{Since: s.Sequence() + 1}); !errors.Is(err, ErrCompacted) {
		t.Errorf("since a later sequence: %v", err)
	}
	w, err = watch(WatchOptions{NoInitial: true, Previous: true})
	must(t, err)
	defer w.Close()
	if got := fmt.Sprint(eventsUntil(t, w, OpSynced)); got != "[synced =]" {
		t.Errorf("without the state: %s", got)
	}
	part, err = watch(WatchOptions{NoInitial: true})
	must(t, err)
	defer part.Close()
	set("/a/1", "later")
	if got := fmt.Sprint(eventsUntil(t, w, OpSet)); got != "[set /a/1=later before w]" {
		t.Errorf("%s", got)
	}
	if got := fmt.Sprint(eventsUntil(t, part, OpSet)); got != "[synced = set /a/1=later]" {
		t.Errorf("%s", got)
	}
}

// A watch that goes on where it was, again and again, while others write: every change once.
func TestWatchSinceGoesOn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{Host: loopback.Own(), Port: 5556})
	var by cable
	c := startClient(t, s, ClientOptions{Dial: by.dial, restless: true})
	must(t, c.WaitActive(ctx))
	at := s.Sequence()
	over := make(chan int64)
	go func() {
		for i := range 3000 {
			must(t, s.Set(ctx, fmt.Sprint("/", i%50), make([]byte, 1000)))
		}
		over <- s.Sequence()
	}()
	end := int64(-1)
	for n := 0; end < 0 || at < end; n++ {
		w, err := c.WatchWith(ctx, WatchOptions{Since: at})
		must(t, err)
		for range 200 + n {
			if at == end {
				break
			}
			e, err := w.Next(ctx)
			must(t, err)
			switch {
			case e.Op == OpSynced && e.Sequence != at:
				t.Fatalf("synced with %d after %d", e.Sequence, at)
			case e.Op == OpSet && e.Sequence != at+1:
				t.Fatalf("%d after %d", e.Sequence, at)
			}
			at = e.Sequence
			select {
			case end = <-over:
			default:
			}
		}
		must(t, w.Close())
		if n%3 == 0 {
			by.pull()
			by.plug()
		}
	}
}

// A bookmark says how far a watch has come although nothing in it has changed.
func TestWatchBookmarks(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{HeartbeatInterval: 10_000_000})
	c := startClient(t, s, ClientOptions{Subtrees: []string{"/quiet/"}})
	w, err := c.WatchWith(ctx, WatchOptions{Bookmarks: true})
	must(t, err)
	defer w.Close()
	own, err := s.WatchWith(WatchOptions{Bookmarks: true, Subtrees: []string{"/quiet/"}})
	must(t, err)
	defer own.Close()
	for range 3 {
		must(t, s.Set(ctx, "/loud", []byte("1")))
		for _, w := range []*Watch{w, own} {
			for {
				e, err := w.Next(ctx)
				must(t, err)
				if e.Op == OpBookmark && e.Sequence == s.Sequence() {
					break
				}
			}
		}
	}
	again, err := c.WatchWith(ctx, WatchOptions{Since: s.Sequence()})
	must(t, err)
	defer again.Close()
	if got := eventsUntil(t, again, OpSynced); len(got) != 1 {
		t.Errorf("after a bookmark: %v", got)
	}
}

// TestWatchGoesOnAfterTheNextRestart: a server that has restarted goes on with a sequence that only
// this run of it knows. What a watch is told of an idle map is a place to go on from after the next
// restart, too.
func TestWatchGoesOnAfterTheNextRestart(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	o := ServerOptions{Host: loopback.Own(), Port: 5556, HeartbeatInterval: 10 * time.Millisecond}
	o.Log = openLog(t, dir)
	s, stop := serveUntil(t, o)
	must(t, s.Set(ctx, "/a/1", []byte("1")))
	must(t, s.Set(ctx, "/b/1", []byte("1")))
	last := s.Sequence()
	again := func() {
		stop()
		o.Log = openLog(t, dir)
		s, stop = serveUntil(t, o)
	}
	again()
	resumed := startClient(t, s, ClientOptions{restless: true})
	must(t, resumed.Sync(ctx))
	again()
	must(t, resumed.Sync(ctx))
	whole, part := startClient(t, s, ClientOptions{}), startClient(t, s, ClientOptions{Subtrees: []string{"/a/"}})
	if s.Sequence() == last {
		t.Fatal("the server has skipped nothing")
	}
	for _, since := range []int64{0, last, s.Sequence()} {
		o := WatchOptions{Since: since, Bookmarks: true}
		own, err := s.WatchWith(o)
		must(t, err)
		watches := []*Watch{own}
		for _, c := range []*Client{whole, part, resumed} {
			must(t, c.Sync(ctx))
			w, err := c.WatchWith(ctx, o)
			must(t, err)
			watches = append(watches, w)
		}
		for i, w := range watches {
			for range 2 { // of each kind
				e, err := w.Next(ctx)
				for ; err == nil && e.Op == OpSet; e, err = w.Next(ctx) {
				}
				must(t, err)
				if e.Sequence != last && since <= last {
					t.Errorf("watch %d since %d: %v at %d, the last update is %d", i, since, e.Op, e.Sequence, last)
				}
			}
			must(t, w.Close())
		}
	}
	again()
	must(t, s.Set(ctx, "/a/1", []byte("2")))
	w, err := part.WatchWith(ctx, WatchOptions{Since: last})
	must(t, err)
	defer w.Close()
	if got := fmt.Sprint(eventsUntil(t, w, OpSynced)); got != "[set /a/1=2 synced =]" {
		t.Error(got)
	}
}

// TestWatchSinceTransactions: what a watch that begins in the past reports of transactions names them,
// and no call of NextBatch reports a part of one; nor does one of a subtree, which has a part only.
func TestWatchSinceTransactions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	must(t, c.WaitActive(ctx))
	since := s.Sequence()
	value := make([]byte, 20<<10)
	for range 40 {
		var b Batch
		for i := range 3 {
			b.Set(fmt.Sprintf("/%c/k%d", 'b'-i%2, i), value)
		}
		_, err := c.ApplyIf(ctx, &b)
		must(t, err)
	}
	for subtree, each := range map[string]int{"": 3, "/b/": 2, "/a/": 1} { // how many it has of each
		w, err := c.WatchWith(ctx, WatchOptions{Since: since, Subtrees: []string{subtree}})
		must(t, err)
		events := 0
		for synced := false; !synced; {
			open := int64(0)
			must(t, w.NextBatch(ctx, func(e Event) bool {
				if synced = e.Op == OpSynced; synced {
					return true
				}
				events++
				if e.Transaction < e.Sequence || e.Transaction > e.Sequence+2 || open != 0 && open != e.Transaction {
					t.Errorf("%s at %d is of transaction %d, after a part of %d", e.Key, e.Sequence, e.Transaction, open)
				}
				if open = e.Transaction; events%each == 0 {
					open = 0
				}
				return true
			}))
			if open != 0 {
				t.Errorf("a part of transaction %d", open)
			}
		}
		if events != 40*each {
			t.Errorf("%q: %d events, want %d", subtree, events, 40*each)
		}
		must(t, w.Close())
	}
}
