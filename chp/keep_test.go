package chp

import (
	"context"
	"errors"
	"iter"
	"maps"
	"strings"
	"testing"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/loopback"
)

// restartable is a server that can start anew at the same ports.
type restartable struct {
	*Server
	t      *testing.T
	opts   ServerOptions
	served chan error
}

func newRestartable(t *testing.T) *restartable {
	t.Helper()
	r := &restartable{t: t, opts: ServerOptions{Host: loopback.Own(), Logger: quiet()}}
	r.start()
	r.opts.Port = portOf(r.Endpoints().Snapshot)
	t.Cleanup(r.stop)
	return r
}

func (r *restartable) start() {
	r.t.Helper()
	s, err := NewServer(r.opts)
	must(r.t, err)
	must(r.t, s.Listen(testContext(r.t)))
	r.Server, r.served = s, make(chan error, 1)
	go func() { r.served <- s.Serve(context.Background()) }()
	<-s.Ready()
}

func (r *restartable) stop() {
	r.t.Helper()
	must(r.t, r.Server.Close())
	must(r.t, <-r.served)
}

// restart also waits until a client has noticed and is back.
func (r *restartable) restart(c *Client) {
	r.t.Helper()
	syncs := sessions(c)
	r.stop()
	r.start()
	eventually(r.t, "the client is back", func() bool { return sessions(c) > syncs && c.State() == StateActive })
}

func entries(list ...Entry) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// A server that restarts with an empty map does not empty a replica with
// KeepOnEmpty.
func TestKeepOnEmpty(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newRestartable(t)
	o := ClientOptions{Servers: []string{s.Endpoints().Snapshot}, HeartbeatTimeout: hang, SyncTimeout: hang}
	follows, err := NewClient(o)
	must(t, err)
	defer follows.Close()
	o.KeepOnEmpty = true
	var log lockedLog
	o.Logger = log.logger()
	c, err := NewClient(o)
	must(t, err)
	defer c.Close()
	must(t, c.WaitActive(ctx))
	must(t, c.Set(ctx, "/a", []byte("1")))
	must(t, c.Set(ctx, "/b", []byte("2")))
	must(t, c.Set(ctx, "/lease", []byte("3"), WithTTL(time.Hour)))
	must(t, c.Flush(ctx))
	w := openWatch(t, c)
	for nextEvent(t, w).Op != OpSynced {
	}

	s.restart(c)
	if got, want := have(c), map[string]string{"/a": "1", "/b": "2"}; !maps.Equal(got, want) {
		t.Errorf("after the restart the client has %v, want %v", got, want)
	}
	if n := c.Stats().Kept; n != 2 {
		t.Errorf("%d keys were kept", n)
	}
	eventually(t, "the log says so", func() bool { return strings.Contains(log.String(), "new and empty") })
	// Without the option the client follows the server.
	eventually(t, "the other client is empty", func() bool { return follows.State() == StateActive && follows.Len() == 0 })

	// Updates change the kept map.
	must(t, c.Set(ctx, "/a", []byte("new")))
	must(t, c.Delete(ctx, "/b"))
	must(t, c.Flush(ctx))
	wantCause(t, w, OpDelete, "/lease", CauseResync)
	wantCause(t, w, OpSet, "/a", CauseSet)
	wantCause(t, w, OpDelete, "/b", CauseDeleted)
	if got, want := have(c), map[string]string{"/a": "new"}; !maps.Equal(got, want) {
		t.Errorf("after updates the client has %v, want %v", got, want)
	}

	// A map that is not new replaces everything, an empty one too.
	must(t, c.Set(ctx, "/c", []byte("3")))
	must(t, c.Delete(ctx, "/a"))
	must(t, c.Delete(ctx, "/c"))
	must(t, c.Flush(ctx))
	s.opts.Preload = entries(Entry{Key: []byte("/d"), Value: []byte("4")})
	s.restart(c)
	if got, want := have(c), map[string]string{"/d": "4"}; !maps.Equal(got, want) || c.Stats().Kept != 0 {
		t.Errorf("after a preload the client has %v, want %v; %d kept", got, want, c.Stats().Kept)
	}
}

// A map whose keys have all been deleted is empty but not new.
func TestEmptyIsNotNew(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	isNew := func(subtree string) bool {
		t.Helper()
		c := announcedDealer(t, s)
		must(t, c.Send(ctx, []byte("ICANHAZ?"), []byte(subtree)))
		m, err := c.Recv(ctx)
		must(t, err)
		if kv := toKV(t, m); kv.key == kvmsg.KeyKTHXBAI {
			value, _ := Properties(kv.properties).Get("map")
			return string(value) == "new"
		}
		return false
	}
	if !isNew("") || !isNew("/a/") {
		t.Error("a new map is not said to be new")
	}
	plain := newPlainClient(t, s)
	if _, last := plain.snapshot(""); last.properties != "" {
		t.Errorf("a client of RFC 12 gets %q", last.properties)
	}
	plain.set("/k", "", "v")
	plain.set("/k", "", "")
	plain.next()
	plain.next()
	if isNew("") {
		t.Error("a map whose keys were deleted is said to be new")
	}
}

// The keys of Preload are there before the server is, with their times to live.
func TestPreload(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{Preload: entries(
		Entry{Key: []byte("/a"), Value: []byte("old")},
		Entry{Key: []byte("/a"), Value: []byte("1"), TTL: time.Hour},
		Entry{Key: []byte("/b"), Value: []byte("2"), TTL: time.Hour},
		Entry{Key: []byte("/b"), Value: []byte("3")},
		Entry{Key: []byte("/brief"), Value: []byte("4"), TTL: time.Millisecond},
	)})
	c := followServer(t, s.Endpoints().Snapshot)
	eventually(t, "what is brief ends", func() bool { return s.Len() == 2 && c.Len() == 2 })
	if got, want := have(c), map[string]string{"/a": "1", "/b": "3"}; !maps.Equal(got, want) {
		t.Errorf("the client has %v, want %v", got, want)
	}
	ttl, _ := timeLeft(c, "/a")
	wantLeft(t, "/a", ttl, time.Hour)
	if ttl, _ := timeLeft(c, "/b"); ttl != 0 {
		t.Errorf("/b has %v left, want no limit", ttl)
	}
	if _, err := c.SetSync(ctx, "/a", []byte("2")); err != nil {
		t.Error(err)
	}
}

// A preload that fails ends NewServer with its error.
func TestPreloadErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for want, seq := range map[error]iter.Seq2[Entry, error]{
		broken:                 func(yield func(Entry, error) bool) { yield(Entry{}, broken) },
		ErrEmptyValue:          entries(Entry{Key: []byte("k")}),
		kvmsg.ErrKeyEmpty:      entries(Entry{Value: []byte("v")}),
		kvmsg.ErrKeyReserved:   entries(Entry{Key: []byte("HUGZ"), Value: []byte("v")}),
		kvmsg.ErrTTL:           entries(Entry{Key: []byte("k"), Value: []byte("v"), TTL: -1}),
		kvmsg.ErrValueTooLarge: entries(Entry{Key: []byte("k"), Value: make([]byte, 2000)}),
	} {
		if s, err := NewServer(ServerOptions{Preload: seq, MaxValueSize: 1000}); !errors.Is(err, want) || s != nil {
			t.Errorf("error %v, want %v", err, want)
		}
	}
}
