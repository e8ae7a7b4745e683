package chp

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
)

// A lease that is renewed lasts, its renewals publish nothing, and when its holder is gone it ends with all of its
// keys as one transaction.
func TestLeaseEndsWithItsKeys(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{ExpiryGrace: -1})
	c, other := startClient(t, s, ClientOptions{}), startClient(t, s, ClientOptions{})
	const ttl = 5 * time.Second
	l, err := c.Grant(ctx, ttl)
	must(t, err)
	must(t, c.Set(ctx, "/a", []byte("1"), WithLease(l)))
	_, err = c.SetSync(ctx, "/b", []byte("2"), WithLease(l), WithProperty("by", "me"))
	must(t, err)
	var batch Batch
	batch.Set("/c", []byte("3"), WithLease(l))
	batch.Set("/d", []byte("4"), WithLease(l))
	batch.Set("/free", []byte("5"))
	_, err = c.ApplyIf(ctx, &batch)
	must(t, err)
	_, err = other.SetSync(ctx, "/a", []byte("not of the lease any more"))
	must(t, err)
	w := openWatch(t, other)
	for e, err := w.Next(ctx); e.Op != OpSynced; e, err = w.Next(ctx) {
		if must(t, err); strings.HasPrefix(string(e.Key), "$") {
			t.Errorf("a watch of all keys has %q", e.Key)
		}
	}
	before := s.Sequence()
	for range 3 {
		renewed(t, c)
	}
	if after := s.Sequence(); after != before {
		t.Errorf("renewals have published %d updates", after-before)
	}
	select {
	case <-l.Done():
		t.Fatalf("the lease has ended: %v", l.Err())
	default:
	}
	for e := range s.All() {
		if strings.HasPrefix(string(e.Key), "$") {
			t.Errorf("All has %q", e.Key)
		}
	}
	if n := len(slices.Collect(s.Prefix(kvmsg.LeasePrefix))); n != 1 {
		t.Errorf("%d leases are shown to those who ask for them, want 1", n)
	}
	left, err := other.LeaseLeft(ctx, l.ID())
	must(t, err)
	if left <= 0 || left > ttl {
		t.Errorf("%v is left", left)
	}
	must(t, c.Close())
	if <-l.Done(); !errors.Is(l.Err(), ErrClosed) {
		t.Errorf("after Close of the client: %v", l.Err())
	}
	gone := map[string]bool{}
	group := int64(0)
	for len(gone) < 3 {
		e, err := w.Next(ctx)
		must(t, err)
		if e.Op != OpDelete || e.Cause != CauseExpired || e.Transaction == 0 || group != 0 && e.Transaction != group {
			t.Fatalf("%v of %q, %v, transaction %d, want %d", e.Op, e.Key, e.Cause, e.Transaction, group)
		}
		gone[string(e.Key)], group = true, e.Transaction
	}
	if !gone["/b"] || !gone["/c"] || !gone["/d"] {
		t.Errorf("%v are gone", gone)
	}
	if now := s.Sequence(); now != before+4 {
		t.Errorf("the end of the lease has %d updates, want 4", now-before)
	}
	if _, err := other.SetSync(ctx, "/e", []byte("6"), WithLease(l)); !errors.Is(err, ErrLeaseEnded) {
		t.Errorf("an update with a lease that has ended: %v", err)
	}
	if _, ok := s.Get("/e"); ok {
		t.Error("it was made")
	}
}

// Revoke ends a lease at once, and another program's holder learns it with the next renewal.
func TestLeaseRevoked(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c, other := startClient(t, s, ClientOptions{}), startClient(t, s, ClientOptions{})
	mine, err := c.Grant(ctx, time.Hour)
	must(t, err)
	_, err = c.SetSync(ctx, "/mine", []byte("1"), WithLease(mine))
	must(t, err)
	must(t, mine.Revoke(ctx))
	if _, ok := s.Get("/mine"); ok || mine.Err() == nil {
		t.Errorf("after Revoke the key is there, or there is no error: %v", mine.Err())
	}
	must(t, mine.Revoke(ctx))
	theirs, err := other.Grant(ctx, time.Second)
	must(t, err)
	_, err = c.SetSync(ctx, "/theirs", []byte("1"), WithLeaseID(theirs.ID()))
	must(t, err)
	must(t, c.RevokeLease(ctx, theirs.ID()))
	if _, ok := s.Get("/theirs"); ok {
		t.Error("after RevokeLease the key is there")
	}
	if <-theirs.Done(); !errors.Is(theirs.Err(), ErrLeaseEnded) {
		t.Errorf("the holder learns %v", theirs.Err())
	}
}

// A lease with more keys than a transaction has ends in several.
func TestLeaseWithManyKeys(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	l, err := c.Grant(ctx, time.Hour)
	must(t, err)
	const keys = 5000
	for i := 0; i < keys; i += 1000 {
		var b Batch
		for n := range 1000 {
			b.Set(fmt.Sprint("/k/", i+n), []byte("v"), WithLease(l))
		}
		_, err := c.ApplyIf(ctx, &b)
		must(t, err)
	}
	must(t, l.Revoke(ctx))
	eventually(t, "all keys are gone", func() bool { return s.Len() == 0 })
	eventually(t, "the client is told", func() bool { return c.Len() == 0 })
}

// A client of many leases renews them together.
func TestLeasesAreRenewedTogether(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	var held []*Lease
	for range 200 {
		l, err := c.Grant(ctx, 12*time.Second) // a machine may stall for as long as two thirds of it
		must(t, err)
		held = append(held, l)
	}
	first := held[0].Deadline()
	eventually(t, "a renewal", func() bool { return held[0].Deadline().Sub(first) > time.Second })
	for _, l := range held {
		if l.Err() != nil {
			t.Fatalf("%v has ended: %v", l, l.Err())
		}
	}
	// Those that were granted within a twelfth of the time to live: on a slow machine there are several groups.
	eventually(t, "leases are renewed in groups", func() bool {
		var all []time.Time
		for _, l := range held {
			all = append(all, l.Deadline())
		}
		slices.SortFunc(all, time.Time.Compare)
		groups := 1
		for i := range all[1:] {
			if all[i+1].Sub(all[i]) > time.Millisecond {
				groups++
			}
		}
		return groups <= leaseSlack+2
	})
}

// No lease ends, and none of its keys, while a server is started again with its log, or the other one of a pair takes
// over, though all times are over there, and there is no grace; and the leases of those who do not come back end there.
func TestLeasesOutliveTheirServer(t *testing.T) {
	t.Parallel()
	for what, begin := range successions(t, -1) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := begin(t)
			c, lost, watcher := s.client(t), s.client(t), s.client(t)
			w := openWatch(t, watcher)
			l, err := c.Grant(ctx, time.Hour)
			must(t, err)
			left, err := lost.Grant(ctx, 3*time.Second)
			must(t, err)
			for i := range 10 {
				_, err = c.SetSync(ctx, fmt.Sprint("/kept/", i), []byte("v"), WithLease(l))
				must(t, err)
				_, err = c.SetSync(ctx, fmt.Sprint("/lost/", i), []byte("v"), WithLease(left))
				must(t, err)
			}
			must(t, lost.Close())
			next := s.successor()
			for gone := 0; gone < 10; {
				e, err := w.Next(ctx)
				must(t, err)
				if e.Op == OpDelete {
					if gone++; strings.HasPrefix(string(e.Key), "/kept/") || e.Cause != CauseExpired {
						t.Fatalf("%s is gone: %v", e.Key, e.Cause)
					}
				}
			}
			renewed(t, c) // at the next server
			if l.Err() != nil || next.Len() != 11 {
				t.Errorf("the lease has ended, or not all keys are there: %v, %d of 11", l.Err(), next.Len())
			}
			must(t, l.Revoke(ctx))
			if n := next.Len(); n != 0 {
				t.Errorf("%d keys are left", n)
			}
		})
	}
}

// A lease with a live holder outlives a server that stood still for longer than its time.
func TestLeaseOutlivesAStandstill(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{ExpiryGrace: -1})
	c := startClient(t, s, ClientOptions{})
	l, err := c.Grant(ctx, time.Hour)
	must(t, err)
	_, err = c.SetSync(ctx, "/k", []byte("v"), WithLease(l))
	must(t, err)
	// Its time is over as it is after a stop: what has come meanwhile was not read.
	s.sequencer.Between(func(now *order.Moment) {
		now.State.Deadlines.Spare(now.State.Last(), -1)
		c := now.State.Cut()
		defer c.Release()
		c.Records(func(r kvmsg.Record) bool {
			if kvmsg.IsHidden(r.Key()) {
				c.Deadlines.Set(kvmsg.HashKey(r.Key()), r.Seq(), timer.Now()-time.Minute)
			}
			return true
		})
	})
	for range 20 {
		s.sequencer.Expire(time.Now())
	}
	if _, ok := s.Get("/k"); !ok {
		t.Error("the key is gone")
	}
	if left, err := c.LeaseLeft(ctx, l.ID()); err != nil || left < 50*time.Minute {
		t.Errorf("%v is left: %v", left, err)
	}
}

// A lease whose time is over is reported to have ended also while the renewal of another one, which has more time, gets no
// answer.
func TestLeaseEndsWhileARenewalWaits(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{ExpiryGrace: -1})
	c := startClient(t, s, ClientOptions{})
	long, err := c.Grant(ctx, time.Hour)
	must(t, err)
	short, err := c.Grant(ctx, 2*time.Second)
	must(t, err)
	must(t, s.Close())
	c.leases.mu.Lock()
	long.when[byDue] = time.Now()
	heap.Fix(&c.leases.heaps[byDue], long.places[byDue])
	c.leases.mu.Unlock()
	wake.Signal(c.leases.fresh[byDue])
	if <-short.Done(); !errors.Is(short.Err(), ErrLeaseEnded) {
		t.Errorf("the error is %v", short.Err())
	}
	if long.Err() != nil {
		t.Errorf("the other one has ended: %v", long.Err())
	}
}

// The key of a lease is set by Grant only: a lease that somebody else has set again would never end. It may be
// deleted; that ends the lease.
func TestLeaseKeyIsNotSetOtherwise(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	l, err := c.Grant(ctx, time.Hour)
	must(t, err)
	_, err = c.SetSync(ctx, "/k", []byte("v"), WithLease(l))
	must(t, err)
	var b Batch
	b.Set("/other", []byte("v"))
	b.Set(l.key(), []byte("3600"))
	var each BatchIf
	each.Set(l.key(), []byte("3600"), WithTTL(time.Hour))
	before := s.Sequence()
	for what, err := range map[string]error{
		"Set": c.Set(ctx, l.key(), []byte("3600")), "Set with a time to live": c.Set(ctx, l.key(), []byte("3600"), WithTTL(time.Hour)),
		"SetSync": errOf(c.SetSync(ctx, l.key(), []byte("3600"))), "SetIf": errOf(c.SetIf(ctx, l.key(), []byte("3600"), IfPresent())),
		"Apply": c.Apply(ctx, &b), "ApplyIf": errOf(c.ApplyIf(ctx, &b)), "ApplyEach": c.ApplyEach(ctx, &each),
		"Update": errOf(c.Update(ctx, l.key(), func([]byte) ([]byte, error) { return []byte("7"), nil })), "Add": errOf(c.Add(ctx, l.key(), 1)),
		"Set of the server": s.Set(ctx, l.key(), []byte("3600")), "Apply of the server": s.Apply(ctx, &b), "SetIf of the server": errOf(s.SetIf(ctx, l.key(), []byte("3600"))),
	} {
		if !errors.Is(err, &MessageError{Reason: ReasonReservedKey}) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := NewServer(ServerOptions{Preload: entries(Entry{Key: []byte(l.key()), Value: []byte("3600")}), Logger: quiet()}); !errors.Is(err, &MessageError{Reason: ReasonReservedKey}) {
		t.Errorf("Preload: %v", err)
	}
	// What a client of another implementation sends.
	raw := newPlainClient(t, s)
	raw.set(l.key(), "ttl=3600\n", "3600")
	raw.set(l.key(), "", "3600")
	raw.set(kvmsg.LeasePrefix+"x", "", "v")
	raw.set("/raw", string(kvmsg.AppendLease(nil, l.id)), "v")
	if m := raw.next(); m.key != "/raw" || m.properties != "" || m.seq != before+1 {
		t.Errorf("published is %+v", m)
	}
	if n := s.Stats().Refused[ReasonReservedKey]; n != 3 {
		t.Errorf("%d updates are refused, want 3", n)
	}
	raw.set(l.key(), "", "")
	eventually(t, "the lease ends with its key", func() bool { _, ok := s.Get("/k"); return !ok })
	if left, err := c.LeaseLeft(ctx, l.ID()); left != 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, ok := s.Get("/raw"); !ok {
		t.Error("a key that is of no lease is gone")
	}
}

// The keys of leases are found by those who ask for their prefix, or for one of them, and by no others.
func TestLeasesAreFoundByTheirPrefix(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	granter := startClient(t, s, ClientOptions{})
	first, err := granter.Grant(ctx, time.Hour)
	must(t, err)
	_, err = granter.SetSync(ctx, "/k", []byte("v"), WithLease(first))
	must(t, err)
	all := startClient(t, s, ClientOptions{Subtrees: []string{kvmsg.LeasePrefix}})
	one := startClient(t, s, ClientOptions{Subtrees: []string{first.key()}})
	others := startClient(t, s, ClientOptions{Subtrees: []string{"/other/"}})
	must(t, all.WaitActive(ctx))
	w := openWatch(t, all, kvmsg.LeasePrefix)
	want := func(op Op, key, value string) {
		t.Helper()
		if e, err := w.Next(ctx); err != nil || e.Op != op || string(e.Key) != key || string(e.Value) != value {
			t.Fatalf("%v of %q, %q, %v", e.Op, e.Key, e.Value, err)
		}
	}
	want(OpSet, first.key(), "3600")
	want(OpSynced, "", "")
	second, err := granter.Grant(ctx, 90*time.Second)
	must(t, err)
	want(OpSet, second.key(), "90")
	if keys, _ := newPlainClient(t, s).snapshot(kvmsg.LeasePrefix); len(keys) != 2 {
		t.Errorf("a client of another implementation finds %d leases, want 2", len(keys))
	}
	must(t, first.Revoke(ctx))
	want(OpDelete, first.key(), "")
	if n := len(slices.Collect(all.Prefix(kvmsg.LeasePrefix))); n != 1 || all.Len() != 1 {
		t.Errorf("%d leases of %d keys are found, want 1", n, all.Len())
	}
	eventually(t, "the lease is gone in the replica of one", func() bool { return one.Len() == 0 })
	if n := others.Len(); n != 0 {
		t.Errorf("a replica of others has %d keys", n)
	}
}

func errOf[T any](_ T, err error) error { return err }

// At a server that knows no leases each call fails at once, and nothing is sent.
func TestNoLeases(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{Model: ModelFive})
	c := startClient(t, s, ClientOptions{Model: ModelFive})
	if _, err := c.Grant(ctx, time.Second); !errors.Is(err, ErrNoLeases) {
		t.Errorf("Grant: %v", err)
	}
	if err := c.Set(ctx, "/k", []byte("v"), WithLeaseID(strings.Repeat("0", 32))); !errors.Is(err, ErrNoLeases) {
		t.Errorf("Set: %v", err)
	}
	if _, err := c.LeaseLeft(ctx, strings.Repeat("0", 32)); !errors.Is(err, ErrNoLeases) {
		t.Errorf("LeaseLeft: %v", err)
	}
	var b Batch
	b.Set("/k", []byte("v"), WithLeaseID(strings.Repeat("0", 32)))
	if err := c.Apply(ctx, &b); err == nil {
		t.Error("Apply takes a key of a lease")
	}
	if err := s.Set(ctx, "/k", []byte("v"), WithLeaseID(strings.Repeat("0", 32))); err == nil {
		t.Error("Set of a server takes a key of a lease")
	}
	if s.Len() != 0 {
		t.Error("something was set")
	}
}
