package chp

import (
	"clustermap/internal/wake"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

func watchServer(t testing.TB, s *Server, subtrees ...string) *Watch {
	t.Helper()
	w, err := s.Watch(subtrees...)
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

// nextChange returns the next event that is not OpSynced, as text with its cause.
func nextChange(t testing.TB, w *Watch) string {
	t.Helper()
	for {
		e, err := w.Next(testContext(t))
		must(t, err)
		if e.Op != OpSynced {
			return fmt.Sprintf("%v %s=%s %v", e.Op, e.Key, e.Value, e.Cause)
		}
	}
}

func wantChanges(t testing.TB, w *Watch, want ...string) {
	t.Helper()
	for _, want := range want {
		if got := nextChange(t, w); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}

// nothingButSynced checks that a watch reports an empty map and nothing else.
func nothingButSynced(t *testing.T, w *Watch) {
	t.Helper()
	e, err := w.Next(testContext(t))
	if err != nil || e.Op != OpSynced {
		t.Errorf("event %s, %v; want synced", say(e), err)
	}
	nothingMore(t, w)
}

// A watch of a server reports its map and then each change, of its own process and of
// clients, in order and with its sequence.
func TestServerWatch(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	base := s.Sequence()
	must(t, s.Set(ctx, "/a/1", []byte("x")))
	must(t, s.Set(ctx, "/b/1", []byte("y")))
	must(t, s.Delete(ctx, "/b/1"))
	must(t, s.Set(ctx, "/c/1", []byte("z")))
	all, part, key := watchServer(t, s), watchServer(t, s, "/a/"), watchServer(t, s, "/c/1")
	must(t, s.Set(ctx, "/a/2", []byte("own")))
	_, err := c.SetSync(ctx, "/c/1", []byte("theirs"))
	must(t, err)
	must(t, s.Delete(ctx, "/a/1"))
	at := func(format string, n int64) string { return fmt.Sprintf(format, base+n) }
	wantEvents(t, all, at("/a/1=x@%d", 1), at("/c/1=z@%d", 4), at("synced@%d", 4), at("/a/2=own@%d", 5), at("/c/1=theirs@%d", 6), at("-/a/1@%d", 7))
	wantEvents(t, part, at("/a/1=x@%d", 1), at("synced@%d", 4), at("/a/2=own@%d", 5), at("-/a/1@%d", 7))
	wantEvents(t, key, at("/c/1=z@%d", 4), at("synced@%d", 4), at("/c/1=theirs@%d", 6))
	for _, w := range []*Watch{all, part, key} {
		nothingMore(t, w)
	}
	var wrong *SubtreeError
	if _, err := s.Watch("a/"); !errors.As(err, &wrong) {
		t.Errorf("a malformed subtree: %v", err)
	}
}

// Expiry and deletion are different events, at the server and at a client; an event has
// the time that is left.
func TestServerWatchCauses(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	must(t, c.WaitActive(ctx))
	local, remote := watchServer(t, s), openWatch(t, c)
	must(t, s.Set(ctx, "/brief", []byte("1"), WithTTL(50*time.Millisecond)))
	eventually(t, "the key expires", func() bool { return s.Len() == 0 })
	must(t, s.Set(ctx, "/gone", []byte("2"), WithTTL(time.Hour)))
	must(t, s.Delete(ctx, "/gone"))
	_, err := c.SetSync(ctx, "/gone", []byte("3"))
	must(t, err)
	_, err = c.DeleteSync(ctx, "/gone")
	must(t, err)
	for _, w := range []*Watch{local, remote} {
		wantChanges(t, w, "set /brief=1 set", "delete /brief= expired", "set /gone=2 set", "delete /gone= deleted",
			"set /gone=3 set", "delete /gone= deleted")
	}
	must(t, s.Set(ctx, "/long", []byte("4"), WithTTL(time.Hour)))
	e, err := local.Next(ctx)
	must(t, err)
	if e.TTL > time.Hour || e.TTL < time.Hour-time.Minute {
		t.Errorf("%v are left of an hour", e.TTL)
	}
	e, err = watchServer(t, s).Next(ctx)
	must(t, err)
	if e.TTL > time.Hour || e.TTL < time.Hour-time.Minute {
		t.Errorf("%v are left of an hour in the first state", e.TTL)
	}
}

// Watches that begin while many goroutines write report every sequence after their first
// state once.
func TestServerWatchLosesNothing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	const writers, updates, watches = 4, 500, 8
	last := s.Sequence() + writers*updates
	var writing, reading sync.WaitGroup
	begun := make(chan struct{})
	for w := range writers {
		writing.Go(func() {
			for i := range updates {
				if err := s.Set(ctx, fmt.Sprintf("/%d", (w+i)%100), fmt.Appendf(nil, "%d", i)); err != nil {
					t.Error(err)
				}
				if i == updates/4 && w == 0 {
					close(begun)
				}
			}
		})
	}
	for i := range watches {
		reading.Go(func() {
			if i%2 == 1 {
				<-begun
			}
			w, err := s.Watch()
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Close()
			seen, at := map[string]string{}, int64(0)
			for at < last {
				e, err := w.Next(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if at > 0 && e.Sequence != at+1 {
					t.Errorf("sequence %d after %d", e.Sequence, at)
					return
				}
				if at > 0 || e.Op == OpSynced {
					at = e.Sequence
				}
				if e.Op == OpSet {
					seen[string(e.Key)] = string(e.Value)
				}
			}
			for key, value := range seen {
				if got, _ := s.Get(key); string(got) != value {
					t.Errorf("%s is %q, the watch reported %q", key, got, value)
				}
			}
		})
	}
	writing.Wait()
	reading.Wait()
}

// A watch reports updates when they are published, and begins with what is.
func TestServerWatchWaitsForCommit(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	must(t, s.Set(ctx, "/a", []byte("1")))
	before := watchServer(t, s)
	wantChanges(t, before, "set /a=1 set")
	release := hold(s)
	base := s.Sequence()
	must(t, s.Set(ctx, "/a", []byte("2")))
	must(t, s.Set(ctx, "/b", []byte("2")))
	during := watchServer(t, s)
	closed := watchServer(t, s)
	must(t, closed.Close())
	must(t, s.Set(ctx, "/a", []byte("3")))
	if e, err := before.Next(wake.Ended); err == nil && e.Op != OpSynced {
		t.Errorf("%s was reported before it was published", say(e))
	}
	release()
	wantChanges(t, before, "set /a=2 set", "set /b=2 set", "set /a=3 set")
	wantEvents(t, during, fmt.Sprintf("/a=1@%d", base), fmt.Sprintf("synced@%d", base), fmt.Sprintf("/a=2@%d", base+1), fmt.Sprintf("/b=2@%d", base+2), fmt.Sprintf("/a=3@%d", base+3))
	nothingMore(t, during)
	if err := s.Flush(ctx); err != nil {
		t.Error(err)
	}
}

// A watch that is not read ends with ErrLagged, and the server does not wait for it.
func TestServerWatchLagged(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{WatchQueue: 10_000})
	w, other := watchServer(t, s), watchServer(t, s)
	for i := range 200 {
		must(t, s.Set(ctx, fmt.Sprintf("/%d", i), make([]byte, 100)))
		if i%10 == 0 {
			must(t, other.NextBatch(ctx, func(Event) bool { return true }))
		}
	}
	if _, err := w.Next(ctx); !errors.Is(err, ErrLagged) {
		t.Errorf("Next: %v; want ErrLagged", err)
	}
	if n := s.Stats().Lagged; n != 1 {
		t.Errorf("%d watches counted as lagged", n)
	}
	if n, _ := s.live.Watches(); n != 1 {
		t.Errorf("the server has %d watches, want 1", n)
	}
}

// Close ends watches, those that wait and those that begin later.
func TestServerWatchClose(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	must(t, s.Set(ctx, "/a", []byte("1")))
	waits, idle := watchServer(t, s), watchServer(t, s)
	wantChanges(t, waits, "set /a=1 set")
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := waits.Next(ctx); err != nil {
				ended <- err
				return
			}
		}
	}()
	must(t, s.Close())
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("a watch that waits: %v", err)
	}
	if _, err := idle.Next(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("a watch with events: %v", err)
	}
	if _, err := s.Watch(); !errors.Is(err, ErrClosed) {
		t.Errorf("a watch after Close: %v", err)
	}
	noReferences(t, &s.live.Now().Store)
}

// A watch of a server that never served ends with it.
func TestServerWatchUnserved(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s, err := NewServer(ServerOptions{Logger: quiet()})
	must(t, err)
	w := watchServer(t, s)
	must(t, s.Set(ctx, "/a", []byte("1")))
	wantChanges(t, w, "set /a=1 set")
	must(t, s.Close())
	if _, err := w.Next(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("Next: %v", err)
	}
}

// The watch of a passive server follows the active one, through the copy of its map, and
// goes on after a takeover; that of the former active server goes on as well.
func TestServerWatchInPair(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	backup, err := NewServer(bo)
	must(t, err)
	w := watchServer(t, backup) // before it serves
	primary := startAlone(t, po)
	c := pairClient(t, po, bo) // asks for a server, so that the primary takes over
	must(t, c.WaitActive(ctx))
	must(t, primary.Set(ctx, "/copied", []byte("1")))
	served := make(chan error, 1)
	go func() { served <- backup.Serve(context.Background()) }()
	t.Cleanup(func() {
		must(t, backup.Close())
		must(t, <-served)
	})
	wantChanges(t, w, "set /copied=1 resync")
	eventually(t, "the backup follows", primary.inSync2)
	former := watchServer(t, primary.Server)
	wantChanges(t, former, "set /copied=1 set")
	_, err = primary.SetSync(ctx, "/a", []byte("2"))
	must(t, err)
	for _, w := range []*Watch{w, former} {
		wantChanges(t, w, "set /a=2 set")
	}
	must(t, primary.pair.Handover(ctx, ""))
	eventually(t, "the backup is active", backup.pair.Active)
	_, err = backup.SetSync(ctx, "/a", []byte("3"))
	must(t, err)
	must(t, backup.Set(ctx, "/brief", []byte("4"), WithTTL(20*time.Millisecond)))
	for _, w := range []*Watch{w, former} {
		wantChanges(t, w, "set /a=3 set", "set /brief=4 set", "delete /brief= expired")
	}
}

// When a server gets another map in place of its own, its watch reports the differences
// alone.
func TestServerWatchOtherMap(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dir := t.TempDir()
	alone, stop := serveUntil(t, ServerOptions{Log: openLog(t, dir), Logger: quiet()})
	must(t, alone.Set(ctx, "/own", []byte("1")))
	must(t, alone.Set(ctx, "/same", []byte("2")))
	must(t, alone.Set(ctx, "/other", []byte("3")))
	stop()

	primary := startAlone(t, po)
	c := pairClient(t, po, bo) // asks for a server, so that the primary takes over
	must(t, c.WaitActive(ctx))
	must(t, primary.Set(ctx, "/same", []byte("2")))
	must(t, primary.Set(ctx, "/other", []byte("4")))
	bo.Log = openLog(t, dir)
	backup, err := NewServer(bo)
	must(t, err)
	w := watchServer(t, backup)
	first := map[string]bool{}
	for range 3 {
		first[nextChange(t, w)] = true
	}
	if !first["set /own=1 set"] || !first["set /same=2 set"] || !first["set /other=3 set"] {
		t.Errorf("the first state: %v", first)
	}
	served := make(chan error, 1)
	go func() { served <- backup.Serve(context.Background()) }()
	t.Cleanup(func() {
		must(t, backup.Close())
		must(t, <-served)
	})
	wantChanges(t, w, "set /same=2 resync", "set /other=4 resync", "delete /own= resync")
	nothingMore(t, w)
}

// Updates that are held when a server stops being the active one are not in its map. Its
// watches do not report them, and SetSync says that their fate is not known.
func TestServerWatchYields(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	primary := startAlone(t, po)
	c := pairClient(t, po, bo)
	must(t, c.WaitActive(ctx))
	before := watchServer(t, primary.Server)
	hold(primary.Server)
	last := primary.ordered()
	synced := make(chan error, 1)
	go func() {
		_, err := primary.SetSync(ctx, "/held", []byte("1"))
		synced <- err
	}()
	eventually(t, "the update is ordered", func() bool { return primary.ordered() > last })
	during := watchServer(t, primary.Server)
	primary.pair.Yield()
	for _, w := range []*Watch{before, during} {
		nothingButSynced(t, w)
	}
	if primary.Len() != 0 {
		t.Error("the map has an update that was not committed")
	}
	if err := <-synced; !errors.Is(err, ErrUncertain) || !errors.Is(err, ErrStandby) {
		t.Errorf("SetSync: %v", err)
	}
}
