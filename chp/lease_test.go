package chp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// A lease sets its key again and again; no client sees it deleted before the lease is
// closed.
func TestLeaseRefreshes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	w := openWatch(t, startClient(t, s, ClientOptions{}))
	l, err := c.keepAlive(ctx, "/services/a", []byte("host:1"), time.Hour, 10*time.Millisecond, []SetOption{WithProperty("zone", "b")})
	must(t, err)
	if e, p := c.Lookup("/services/a"); p != PresenceFound || string(e.Value) != "host:1" || e.TTL <= 0 {
		t.Errorf("KeepAlive returns, and the key is %v with %q, %v left", p, e.Value, e.TTL)
	}
	eventually(t, "the key is set again", func() bool { return s.Stats().Updates >= 5 })
	l.Update([]byte("host:2"))
	eventually(t, "the new value", func() bool { v, _ := c.Get("/services/a"); return string(v) == "host:2" })
	eventually(t, "a refresh in time", func() bool { return l.Err() == nil })
	must(t, l.Close())
	must(t, l.Close())
	for last := false; !last; {
		e, err := w.Next(ctx)
		must(t, err)
		switch {
		case e.Op == OpDelete && e.Cause != CauseDeleted:
			t.Errorf("the key is gone: %v", e.Cause)
		case e.Op == OpSet && string(e.Properties[:7]) != "zone=b\n":
			t.Errorf("properties %q", e.Properties)
		}
		last = e.Op == OpDelete
	}
	n := s.Stats().Updates
	must(t, c.Flush(ctx))
	if s.Stats().Updates != n {
		t.Error("the lease goes on after Close")
	}
}

// KeepAlive itself refreshes within the time to live.
func TestLeaseOutlivesTTL(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	l, err := c.KeepAlive(ctx, "/k", []byte("v"), 600*time.Millisecond)
	must(t, err)
	eventually(t, "the key outlives its time to live", func() bool { return s.Stats().Updates >= 5 })
	if _, ok := c.Get("/k"); !ok {
		eventually(t, "the key comes back after a stall of this machine", func() bool { _, ok := c.Get("/k"); return ok })
	}
	must(t, l.Close())
	eventually(t, "the key is deleted", func() bool { return s.Len() == 0 })
}

// How a lease ends: whether the key goes with it.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		end     func(t *testing.T, l *Lease, cancel func(), c, other *Client)
		deleted bool
	}{
		"Close":          {func(t *testing.T, l *Lease, _ func(), _, _ *Client) { must(t, l.Close()) }, true},
		"the context":    {func(_ *testing.T, l *Lease, cancel func(), _, _ *Client) { cancel(); <-l.ended }, true},
		"Stop":           {func(_ *testing.T, l *Lease, _ func(), _, _ *Client) { l.Stop() }, false},
		"Stop and Close": {func(t *testing.T, l *Lease, _ func(), _, _ *Client) { l.Stop(); must(t, l.Close()) }, false},
		"Close of the client": {func(t *testing.T, l *Lease, _ func(), c, _ *Client) {
			must(t, c.Close())
			<-l.ended
			must(t, l.Close())
		}, false},
		"Close after another's update": {func(t *testing.T, l *Lease, _ func(), c, other *Client) {
			seq, err := other.SetSync(testContext(t), "/k", []byte("v"), WithTTL(time.Hour)) // of a successor, with the same value
			must(t, err)
			eventually(t, "the client has the update", func() bool { return c.Sequence() >= seq })
			must(t, l.Close())
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, ServerOptions{})
			c, other := startClient(t, s, ClientOptions{}), startClient(t, s, ClientOptions{})
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			l, err := c.KeepAlive(ctx, "/k", []byte("v"), time.Hour)
			must(t, err)
			test.end(t, l, cancel, c, other)
			if test.deleted {
				eventually(t, "the key is deleted", func() bool { return s.Len() == 0 })
				return
			}
			_, err = other.SetSync(testContext(t), "/after", []byte("v")) // the lease's updates have arrived before
			must(t, err)
			if _, ok := s.Get("/k"); !ok {
				t.Error("the key is gone")
			}
		})
	}
}

// A lease of a client that has no snapshot yet sets its key once: a second time could
// replace the update of another client, which was made after KeepAlive had returned.
func TestLeaseBeforeFirstSnapshot(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	other := startClient(t, s, ClientOptions{})
	before, err := other.SetSync(testContext(t), "/other", []byte("v"))
	must(t, err)
	const leases, updates = 20, 5
	for i := range leases {
		c := startClient(t, s, ClientOptions{})
		l, err := c.KeepAlive(testContext(t), fmt.Sprint("/k/", i), []byte("v"), time.Hour)
		must(t, err)
		for range updates {
			_, err := other.SetSync(testContext(t), "/other", []byte("v"))
			must(t, err)
		}
		l.Stop()
	}
	if n := s.Sequence() - before; n != leases*(1+updates) {
		t.Errorf("%d updates, want %d", n, leases*(1+updates))
	}
}

// After a failover the key is set at the other server, which has another map, without
// waiting for the next refresh.
func TestLeaseFailsOver(t *testing.T) {
	t.Parallel()
	for what, subtrees := range map[string][]string{"in the subtrees": nil, "outside of the subtrees": {"/other/"}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			first, second := startServer(t, ServerOptions{}), startServer(t, ServerOptions{})
			c, err := NewClient(ClientOptions{
				Servers: []string{first.Endpoints().Snapshot, second.Endpoints().Snapshot}, Subtrees: subtrees,
				HeartbeatTimeout: hang, SyncTimeout: hang, // so that it follows the first one first
			})
			must(t, err)
			defer c.Close()
			l, err := c.KeepAlive(testContext(t), "/k", []byte("v"), time.Hour)
			must(t, err)
			eventually(t, "the first server has the key", func() bool { _, ok := first.Get("/k"); return ok })
			must(t, first.Close())
			eventually(t, "the second server has the key", func() bool { _, ok := second.Get("/k"); return ok })
			must(t, l.Close())
			eventually(t, "the key is deleted", func() bool { return second.Len() == 0 })
		})
	}
}

func TestLeaseErrors(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{MaxValueSize: 10})
	c := startClient(t, s, ClientOptions{})
	value := []byte("v")
	for _, test := range []struct {
		value []byte
		ttl   time.Duration
		want  error
	}{
		{value, 0, &MessageError{Reason: ReasonTTL}},
		{value, -1, &MessageError{Reason: ReasonTTL}},
		{nil, time.Hour, ErrEmptyValue},
		{make([]byte, 11), time.Hour, &MessageError{Reason: ReasonValueTooLarge}},
	} {
		if _, err := c.KeepAlive(ctx, "/k", test.value, test.ttl); !errors.Is(err, test.want) {
			t.Errorf("a value of %d bytes for %v: %v, want %v", len(test.value), test.ttl, err, test.want)
		}
	}
	l, err := c.KeepAlive(ctx, "/k", value, time.Hour)
	must(t, err)
	l.Update(make([]byte, 11))
	eventually(t, "the refresh fails", func() bool { return errors.Is(l.Err(), &MessageError{Reason: ReasonValueTooLarge}) })
	l.Update([]byte("w"))
	eventually(t, "the refresh succeeds", func() bool { return l.Err() == nil })
	must(t, c.Close())
	if _, err := c.KeepAlive(ctx, "/k", value, time.Hour); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
