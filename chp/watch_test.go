package chp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"clustermap/chp/internal/state"
	"clustermap/chp/internal/submit"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/wake"
)

// idleClient is a client that does not run: the test plays its sessions.
func idleClient(t testing.TB, o ClientOptions) *Client {
	t.Helper()
	o.Servers = []string{"tcp://127.0.0.1:1"}
	c, err := newClient(o)
	must(t, err)
	return c
}

// nowhere is a session that connects to a collector which takes everything.
type nowhere struct{}

func (nowhere) Open() (submit.Uplink, error)                   { return nowhere{}, nil }
func (nowhere) Fail(error)                                     {}
func (nowhere) Over() <-chan struct{}                          { return nil }
func (nowhere) Ready() error                                   { return nil }
func (nowhere) Send(bool, []byte, int, *buf.Chunk, bool) error { return nil }
func (nowhere) Request(bool, []byte, int) error                { return nil }
func (nowhere) Known() bool                                    { return false }
func (nowhere) GiveUp()                                        {}
func (nowhere) Leave(done <-chan struct{})                     { <-done }

// played is a session of an idle client that the test plays.
type played struct {
	client  *Client
	replica *state.State
}

// begin makes a session of an idle client ACTIVE, with a snapshot at cut.
func begin(t testing.TB, c *Client, cut int64, snapshot ...pub) *played {
	t.Helper()
	s := &played{c, state.New(0)}
	s.replica.Store.SetUp(store.Options{MinSegment: 1 << 10})
	applyTo(t, &s.replica.Store, snapshot...)
	c.live.Install(s.replica, cut)
	return s
}

// play applies KVPUBs in one batch.
func (s *played) play(t testing.TB, messages ...pub) {
	t.Helper()
	wire, spans := wireBatch(t, messages...)
	s.client.live.Apply(wire, spans, messages[len(messages)-1].seq)
}

func openWatch(t testing.TB, c *Client, subtrees ...string) *Watch {
	t.Helper()
	w, err := c.Watch(subtrees...)
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

// say is an event in a few bytes.
func say(e Event) string {
	switch e.Op {
	case OpSet:
		return fmt.Sprintf("%s=%s@%d", e.Key, e.Value, e.Sequence)
	case OpDelete:
		return fmt.Sprintf("-%s@%d", e.Key, e.Sequence)
	}
	return fmt.Sprintf("synced@%d", e.Sequence)
}

// wantEvents reads as many events as are wanted; those before OpSynced may come
// in any order.
func wantEvents(t *testing.T, w *Watch, want ...string) {
	t.Helper()
	var got []string
	for range want {
		e, err := w.Next(testContext(t))
		must(t, err)
		got = append(got, say(e))
	}
	if i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "synced") }); i > 0 {
		slices.Sort(got[:i])
		slices.Sort(want[:i])
	}
	if !slices.Equal(got, want) {
		t.Errorf("events\n%q, want\n%q", got, want)
	}
}

// nothingMore checks that no event is queued.
func nothingMore(t *testing.T, w *Watch) {
	t.Helper()
	if e, err := w.Next(wake.Ended); !errors.Is(err, context.Canceled) {
		t.Errorf("event %s, %v; want none", say(e), err)
	}
}

func TestWatchSnapshotThenChanges(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{})
	s := begin(t, c, 10, pub{"/a/1", 3, "x"}, pub{"/b/1", 4, "y"})
	s.play(t, pub{"/a/2", 11, "z"})
	w := openWatch(t, c)
	s.play(t, pub{"/a/1", 12, "xx"}, pub{"/a/2", 13, ""})
	s.play(t, pub{"/c/1", 14, "new"})
	wantEvents(t, w, "/a/1=x@3", "/a/2=z@11", "/b/1=y@4", "synced@11", "/a/1=xx@12", "-/a/2@13", "/c/1=new@14")
	nothingMore(t, w)
	s.play(t, pub{"/c/1", 15, ""})
	wantEvents(t, w, "-/c/1@15")
}

func TestWatchBeforeFirstState(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{})
	w := openWatch(t, c)
	nothingMore(t, w)
	s := begin(t, c, 10)
	s.play(t, pub{"k", 11, "v"})
	wantEvents(t, w, "synced@10", "k=v@11")
}

func TestWatchUUIDAndProperties(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{})
	s := begin(t, c, 0)
	w := openWatch(t, c)
	id := []byte("0123456789abcdef")
	for _, properties := range []string{"", "ttl=30\n", "a=" + strings.Repeat("x", 300) + "\n"} {
		s.replica.Store.Put([]byte("k"), 1, nil, nil, []byte("v"))
		wire := kvmsg.AppendRecord(nil, []byte("k"), c.Sequence()+1, id, []byte(properties), []byte(strings.Repeat("v", 300)))
		size, tag, _, err := kvmsg.Inspect(wire, kvmsg.FromServer, 0)
		must(t, err)
		c.live.Apply(wire, []buf.Span{{End: uint32(size), Tag: tag}}, c.Sequence()+1)
		for {
			e, err := w.Next(testContext(t))
			must(t, err)
			if e.Op == OpSynced {
				continue
			}
			if string(e.UUID) != string(id) || string(e.Properties) != properties || len(e.Value) != 300 {
				t.Errorf("UUID %x, properties %q, %d bytes of value", e.UUID, e.Properties, len(e.Value))
			}
			break
		}
	}
}

func TestWatchSubtrees(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{Subtrees: []string{"/a/", "/b/"}})
	s := begin(t, c, 10, pub{"/a/1", 3, "x"}, pub{"/b/1", 4, "y"}, pub{"/b/11", 4, "y"})
	w := openWatch(t, c, "/b/1", "/a/2/")
	s.play(t, pub{"/a/1", 12, "xx"}, pub{"/a/2/3", 13, "q"}, pub{"/b/1", 14, ""}, pub{"/b/12", 15, "v"})
	wantEvents(t, w, "/b/1=y@4", "synced@10", "/a/2/3=q@13", "-/b/1@14")
	nothingMore(t, w)

	if _, err := c.Watch("/c/"); !errors.Is(err, ErrOutsideSubtrees) {
		t.Errorf("a watch outside: %v", err)
	}
	var malformed *SubtreeError
	if _, err := c.Watch("c/"); !errors.As(err, &malformed) {
		t.Errorf("a malformed subtree: %v", err)
	}
	openWatch(t, c, "") // contains those of the client
}

func TestWatchResynchronised(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{})
	s := begin(t, c, 10, pub{"same", 3, "x"}, pub{"gone", 4, "y"}, pub{"other", 5, "z"})
	w := openWatch(t, c)
	s.play(t, pub{"live", 11, "1"})
	// Another server, which counts lower, gave a number to another key, and got one value again.
	s = begin(t, c, 5, pub{"same", 1, "x"}, pub{"other", 5, "changed"}, pub{"new", 2, "n"})
	s.play(t, pub{"live", 6, "2"})
	wantEvents(t, w, "gone=y@4", "other=z@5", "same=x@3", "synced@10", "live=1@11")
	var diff []string
	for range 5 {
		e, err := w.Next(testContext(t))
		must(t, err)
		diff = append(diff, say(e))
	}
	slices.Sort(diff)
	if want := []string{"-gone@5", "-live@5", "new=n@2", "other=changed@5", "same=x@1"}; !slices.Equal(diff, want) {
		t.Errorf("after the resynchronisation %q, want %q", diff, want)
	}
	wantEvents(t, w, "live=2@6")
	nothingMore(t, w)
}

func TestWatchLagged(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{WatchQueue: 1 << 10})
	s := begin(t, c, 0)
	lagging, reading := openWatch(t, c), openWatch(t, c)
	wantEvents(t, lagging, "synced@0")
	wantEvents(t, reading, "synced@0")
	for i := range int64(200) {
		s.play(t, pub{"k", i + 1, "some value"})
		wantEvents(t, reading, fmt.Sprintf("k=some value@%d", i+1))
	}
	for range 2 {
		if _, err := lagging.Next(testContext(t)); !errors.Is(err, ErrLagged) {
			t.Fatalf("error %v, want ErrLagged", err)
		}
	}
	if stats := c.Stats(); stats.Lagged != 1 || stats.Watches != 1 {
		t.Errorf("%d lagged, %d open", stats.Lagged, stats.Watches)
	}
	must(t, lagging.Close())
	must(t, reading.Close()) // it holds the event that it was lent last
	if _, err := lagging.Next(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	noReferences(t, &s.replica.Store)
}

// noReferences checks that no reference to a store's segments is left.
func noReferences(t *testing.T, s *store.Map) {
	t.Helper()
	if n := s.References(); n != 0 {
		t.Errorf("%d references are left", n)
	}
}

func TestWatchOneBigBatchIsNoLag(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{WatchQueue: 1 << 10})
	s := begin(t, c, 0)
	w := openWatch(t, c)
	big := strings.Repeat("x", 5000)
	s.play(t, pub{"k", 1, big})
	wantEvents(t, w, "synced@0", "k="+big+"@1")
}

func TestWatchLagsBehindResynchronisations(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{})
	var states []*state.State
	w := openWatch(t, c)
	for i := range 6 {
		states = append(states, begin(t, c, int64(i), pub{"k", 1, fmt.Sprint(i)}).replica)
	}
	if _, err := w.Next(testContext(t)); !errors.Is(err, ErrLagged) {
		t.Fatalf("error %v, want ErrLagged", err)
	}
	for _, s := range states {
		noReferences(t, &s.Store)
	}
}

func TestWatchClose(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{})
	s := begin(t, c, 10, pub{"a", 1, "x"}, pub{"b", 2, "y"})
	waiting := openWatch(t, c)
	wantEvents(t, waiting, "a=x@1", "b=y@2", "synced@10")
	ended := make(chan error)
	go func() {
		_, err := waiting.Next(context.Background())
		ended <- err
	}()
	must(t, waiting.Close())
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("waiting Next: %v", err)
	}
	must(t, waiting.Close())

	midway := openWatch(t, c)
	_, err := midway.Next(testContext(t))
	must(t, err)
	s.play(t, pub{"c", 11, "z"})
	must(t, midway.Close())
	noReferences(t, &s.replica.Store)
	if n := c.Stats().Watches; n != 0 {
		t.Errorf("%d watches are open", n)
	}

	inside := openWatch(t, c)
	if err := inside.NextBatch(testContext(t), func(Event) bool {
		if _, err := inside.Next(testContext(t)); err == nil || !strings.Contains(err.Error(), "another goroutine") {
			t.Errorf("second fetch at a time: %v", err)
		}
		must(t, inside.Close())
		return false
	}); err != nil {
		t.Error(err)
	}
	noReferences(t, &s.replica.Store)
}

func TestWatchNextBatch(t *testing.T) {
	t.Parallel()
	c := idleClient(t, ClientOptions{})
	s := begin(t, c, 0, pub{"a", 1, "x"})
	w := openWatch(t, c)
	for i := range int64(10) {
		s.play(t, pub{"k", i + 1, "v"}, pub{"l", i + 100, ""}, pub{"m", i + 200, "v"})
	}
	var got []string
	take := func(n int) {
		t.Helper()
		must(t, w.NextBatch(testContext(t), func(e Event) bool {
			got = append(got, say(e))
			n--
			return n != 0
		}))
	}
	take(1)
	take(5)
	take(-1)
	if len(got) != 32 || got[0] != "a=x@1" || got[1] != "synced@0" || got[2] != "k=v@1" || got[31] != "m=v@209" {
		t.Errorf("%d events: %q", len(got), got)
	}
	if err := w.NextBatch(wake.Ended, func(Event) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("NextBatch without events: %v", err)
	}
}
