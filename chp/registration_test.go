package chp

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/internal/wake"
)

// kinds are the models of a server that knows leases, and of one that does not, so that keys are refreshed.
var kinds = map[string]Model{"with a lease": ModelSix, "with refreshes": ModelFive}

// A registration whose server knows no leases sets its key again and again; no client sees it
// deleted before the registration is closed.
func TestRegistrationRefreshes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{Model: ModelFive})
	c := startClient(t, s, ClientOptions{Model: ModelFive})
	other := startClient(t, s, ClientOptions{Model: ModelFive})
	must(t, other.WaitActive(ctx)) // otherwise it gets the key from a snapshot, which has no properties with this model
	w := openWatch(t, other)
	l, err := patient(c.keepAlive(ctx, "/services/a", []byte("host:1"), time.Hour, 10*time.Millisecond, []SetOption{WithProperty("zone", "b")}))
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
	seesOne(t, w, "zone=b\n")
	n := s.Stats().Updates
	must(t, c.Flush(ctx))
	if s.Stats().Updates != n {
		t.Error("the registration goes on after Close")
	}
}

// seesOne reads what a watch reports of the key of a registration, until it is deleted, and returns the values.
func seesOne(t *testing.T, w *Watch, properties string) (values []string) {
	t.Helper()
	for {
		e, err := w.Next(testContext(t))
		must(t, err)
		switch {
		case e.Op == OpDelete && e.Cause != CauseDeleted:
			t.Errorf("the key is gone: %v", e.Cause)
		case e.Op == OpSet && !strings.Contains(string(e.Properties), properties):
			t.Errorf("properties %q", e.Properties)
		case e.Op == OpSet:
			values = append(values, string(e.Value))
		}
		if e.Op == OpDelete {
			return values
		}
	}
}

// renewed waits until all leases of a client are renewed, which are due.
func renewed(t *testing.T, c *Client) {
	t.Helper()
	was := map[*Lease]time.Time{}
	c.leases.mu.Lock()
	for _, l := range c.leases.heaps[byDeadline].leases {
		was[l], l.when[byDue] = l.when[byDeadline], time.Now()
	}
	heap.Init(&c.leases.heaps[byDue])
	c.leases.mu.Unlock()
	wake.Signal(c.leases.fresh[byDue])
	eventually(t, "all leases are renewed", func() bool {
		for l, deadline := range was {
			if !l.Deadline().After(deadline) {
				return false
			}
		}
		return len(was) > 0
	})
}

// Registrations publish nothing while their keys are there, however often they look and renew.
func TestRegistrationsPublishNothing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	w := openWatch(t, startClient(t, s, ClientOptions{}))
	var all []*Registration
	for i := range 100 {
		l, err := patient(c.keepAlive(ctx, fmt.Sprint("/services/", i), []byte("host:1"), time.Hour, 5*time.Millisecond, []SetOption{WithProperty("zone", "b"), WithTTL(time.Second)}))
		must(t, err)
		all = append(all, l)
	}
	if e, p := c.Lookup("/services/0"); p != PresenceFound || string(e.Value) != "host:1" || e.TTL != 0 {
		t.Errorf("KeepAlive returns, and the key is %v with %q, %v left", p, e.Value, e.TTL)
	}
	sequence := s.Sequence()
	for range 3 {
		renewed(t, c)
	}
	// As many looks as would have been refreshes.
	looked := make(chan struct{})
	l := all[0]
	go func() {
		defer close(looked)
		for range 3 {
			l.mu.Lock()
			l.err = context.DeadlineExceeded
			l.mu.Unlock()
			eventually(t, "a look at the key", func() bool { return l.Err() == nil })
		}
	}()
	<-looked
	if n := s.Sequence() - sequence; n != 0 {
		t.Errorf("%d updates were published", n)
	}
	for _, l := range all[1:] {
		l.Stop()
	}
	l.Update([]byte("host:2"))
	eventually(t, "the new value", func() bool { v, _ := c.Get("/services/0"); return string(v) == "host:2" })
	must(t, l.Close())
	must(t, l.Close())
	// Each key once, and then the new value: again if the outcome did not come within the 5 ms of a look.
	values := seesOne(t, w, "zone=b\n")
	for i, v := range values {
		if want := map[bool]string{true: "host:1", false: "host:2"}[i < len(all)]; v != want || len(values) <= len(all) {
			t.Fatalf("a watch sees %q", values)
		}
	}
	eventually(t, "a lease is gone with its key", func() bool { return s.Len() == 2*(len(all)-1) })
}

// A registration lasts longer than its time to live.
func TestRegistrationOutlivesTTL(t *testing.T) {
	t.Parallel()
	for what, model := range kinds {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := startServer(t, ServerOptions{Model: model})
			c := startClient(t, s, ClientOptions{Model: model})
			const ttl = 600 * time.Millisecond
			began := time.Now()
			l, err := patient(c.KeepAlive(ctx, "/k", []byte("v"), ttl))
			must(t, err)
			eventually(t, "three times its time to live are over", func() bool { return time.Since(began) > 3*ttl })
			// On a machine that stalls for as long it is gone for a moment.
			eventually(t, "the key outlives its time to live", func() bool { _, ok := c.Get("/k"); return ok && l.Err() == nil })
			must(t, l.Close())
			eventually(t, "the key is deleted", func() bool { return s.Len() == 0 })
		})
	}
}

// patient makes a registration wait at its end for as long as a test may take: on a machine that stalls, a second may be over
// before the key is deleted, which then stays for its time.
func patient(l *Registration, err error) (*Registration, error) {
	if l != nil {
		l.last = hang
	}
	return l, err
}

// A key that another client deletes or sets comes back, and so does one whose lease somebody ends.
func TestRegistrationComesBack(t *testing.T) {
	t.Parallel()
	for what, subtrees := range map[string][]string{"in the subtrees": nil, "outside of the subtrees": {"/other/"}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := startServer(t, ServerOptions{})
			c, other := startClient(t, s, ClientOptions{Subtrees: subtrees}), startClient(t, s, ClientOptions{})
			l, err := patient(c.keepAlive(ctx, "/k", []byte("v"), time.Hour, 10*time.Millisecond, nil))
			must(t, err)
			id := l.lease.ID()
			back := func() bool { v, _ := s.Get("/k"); return string(v) == "v" }
			_, err = other.DeleteSync(ctx, "/k")
			must(t, err)
			eventually(t, "the key is back", back)
			_, err = other.SetSync(ctx, "/k", []byte("another's"))
			must(t, err)
			eventually(t, "its value is back", back)
			must(t, other.RevokeLease(ctx, id))
			eventually(t, "the key is back with another lease", back)
			must(t, l.Close())
			eventually(t, "the key is deleted", func() bool { return s.Len() == 0 })
		})
	}
}

// A registration outside of the client's subtrees that ends after another update of its key waits for no heartbeat, and its
// lease ends with it.
func TestRegistrationOutsideOfSubtreesEndsAtOnce(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{HeartbeatInterval: time.Hour})
	c, other := startClient(t, s, ClientOptions{Subtrees: []string{"/other/"}, HeartbeatTimeout: -1}), startClient(t, s, ClientOptions{HeartbeatTimeout: -1})
	l, err := patient(c.KeepAlive(ctx, "/k", []byte("v"), time.Hour))
	must(t, err)
	id := l.lease.ID()
	_, err = other.SetSync(ctx, "/k", []byte("another's"))
	must(t, err)
	must(t, l.Close())
	if left, err := other.LeaseLeft(ctx, id); err != nil || left != 0 {
		t.Errorf("the lease has %v left, %v", left, err)
	}
	if v, _ := s.Get("/k"); string(v) != "another's" {
		t.Errorf("the key has %q", v)
	}
}

// A registration goes on with refreshes at a server that knows no leases, and with a lease at the next one
// that does.
func TestRegistrationAtServerWithoutLeases(t *testing.T) {
	t.Parallel()
	first, second, third := startServer(t, ServerOptions{}), newScripted(t, asPlain), startServer(t, ServerOptions{})
	c, err := NewClient(ClientOptions{
		Servers:          []string{first.Endpoints().Snapshot, second.name(), third.Endpoints().Snapshot},
		HeartbeatTimeout: hang, SyncTimeout: hang,
	})
	must(t, err)
	defer c.Close()
	l, err := patient(c.KeepAlive(testContext(t), "/k", []byte("v"), time.Hour))
	must(t, err)
	if e, _ := first.Lookup("/k"); string(e.Value) != "v" || e.TTL != 0 {
		t.Errorf("the key has %q, and %v left", e.Value, e.TTL)
	}
	must(t, first.Close())
	second.answer(7)
	u := second.kvset()
	second.publish(u.key, 8, u.uuid, "ttl=3600\n", u.value)
	eventually(t, "the client has the key", func() bool { e, _ := c.Lookup("/k"); return e.TTL > 0 })
	second.close()
	eventually(t, "the third server has the key", func() bool { e, _ := third.Lookup("/k"); return string(e.Value) == "v" && e.TTL == 0 })
	must(t, l.Close())
	eventually(t, "the key is deleted", func() bool { return third.Len() == 0 })
}

// How a registration ends: whether the key goes with it.
func TestRegistrationEnds(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		end     func(t *testing.T, l *Registration, cancel func(), c, other *Client)
		deleted bool
	}{
		"Close":          {func(t *testing.T, l *Registration, _ func(), _, _ *Client) { must(t, l.Close()) }, true},
		"the context":    {func(_ *testing.T, l *Registration, cancel func(), _, _ *Client) { cancel(); <-l.ended }, true},
		"Stop":           {func(_ *testing.T, l *Registration, _ func(), _, _ *Client) { l.Stop() }, false},
		"Stop and Close": {func(t *testing.T, l *Registration, _ func(), _, _ *Client) { l.Stop(); must(t, l.Close()) }, false},
		"Close of the client": {func(t *testing.T, l *Registration, _ func(), c, _ *Client) {
			must(t, c.Close())
			<-l.ended
			must(t, l.Close())
		}, false},
		"Close after another's update": {func(t *testing.T, l *Registration, _ func(), c, other *Client) {
			seq, err := other.SetSync(testContext(t), "/k", []byte("v"), WithTTL(time.Hour)) // of a successor, with the same value
			must(t, err)
			eventually(t, "the client has the update", func() bool { return c.Sequence() >= seq })
			must(t, l.Close())
		}, false},
	} {
		for kind, model := range kinds {
			t.Run(what+" "+kind, func(t *testing.T) {
				t.Parallel()
				s := startServer(t, ServerOptions{Model: model})
				c, other := startClient(t, s, ClientOptions{Model: model}), startClient(t, s, ClientOptions{Model: model})
				ctx, cancel := context.WithCancel(testContext(t))
				defer cancel()
				l, err := patient(c.KeepAlive(ctx, "/k", []byte("v"), time.Hour))
				must(t, err)
				test.end(t, l, cancel, c, other)
				if test.deleted {
					eventually(t, "the key is deleted", func() bool { return s.Len() == 0 })
					return
				}
				_, err = other.SetSync(testContext(t), "/after", []byte("v")) // the registration's updates have arrived before
				must(t, err)
				if _, ok := s.Get("/k"); !ok {
					t.Error("the key is gone")
				}
			})
		}
	}
}

// A registration of a client that has no snapshot yet sets its key once: a second time could
// replace the update of another client, which was made after KeepAlive had returned.
func TestRegistrationBeforeFirstSnapshot(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	other := startClient(t, s, ClientOptions{})
	before, err := other.SetSync(testContext(t), "/other", []byte("v"))
	must(t, err)
	const leases, updates = 20, 5
	for i := range leases {
		c := startClient(t, s, ClientOptions{})
		l, err := patient(c.KeepAlive(testContext(t), fmt.Sprint("/k/", i), []byte("v"), time.Hour))
		must(t, err)
		for range updates {
			_, err := other.SetSync(testContext(t), "/other", []byte("v"))
			must(t, err)
		}
		l.Stop()
	}
	if n := s.Sequence() - before; n != leases*(2+updates) { // a lease and its key
		t.Errorf("%d updates, want %d", n, leases*(2+updates))
	}
}

// After a failover the key is set at the other server, which has another map, without
// waiting for the next refresh.
func TestRegistrationFailsOver(t *testing.T) {
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
			l, err := patient(c.KeepAlive(testContext(t), "/k", []byte("v"), time.Hour))
			must(t, err)
			eventually(t, "the first server has the key", func() bool { _, ok := first.Get("/k"); return ok })
			must(t, first.Close())
			eventually(t, "the second server has the key", func() bool { _, ok := second.Get("/k"); return ok })
			must(t, l.Close())
			eventually(t, "the key is deleted", func() bool { return second.Len() == 0 })
		})
	}
}

func TestRegistrationErrors(t *testing.T) {
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
	l, err := patient(c.KeepAlive(ctx, "/k", value, time.Hour))
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

// A registration without a value waits for one, also when its lease has ended.
func TestRegistrationWithoutAValueWaits(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := startClient(t, startServer(t, ServerOptions{}), ClientOptions{})
	lease, err := c.Grant(ctx, time.Hour)
	must(t, err)
	must(t, lease.Close())
	l := &Registration{client: c, key: "/k", ttl: time.Hour, lease: lease, renew: make(chan struct{}, 1)}
	if err := l.set(ctx); !errors.Is(err, ErrEmptyValue) {
		t.Error(err)
	}
	sessions := c.follower.Counted.Sessions()
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	again := testenv.Blocked(t, "chp.(*Registration).wait", func() bool { return l.wait(limited, nil, sessions) })
	cancel()
	if <-again {
		t.Error("it is set again, although there is nothing to set")
	}
}
