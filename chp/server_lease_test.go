package chp

import (
	"errors"
	"testing"
	"time"
)

// A server grants leases in its own process, which are the same to it and to clients.
func TestServerGrantsLeases(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	id, err := s.Grant(ctx, time.Hour)
	must(t, err)
	_, err = s.SetIf(ctx, "/a", []byte("1"), WithLeaseID(id), IfAbsent())
	must(t, err)
	var b Batch
	b.Set("/b", []byte("2"), WithLeaseID(id))
	_, err = s.ApplyIf(ctx, &b)
	must(t, err)
	if err := s.Set(ctx, "/c", []byte("3"), WithLeaseID(id)); !errors.Is(err, errLeaseBatch) {
		t.Errorf("Set attached a key: %v", err)
	}
	for _, ask := range []func() (time.Duration, error){
		func() (time.Duration, error) { return s.LeaseLeft(ctx, id) },
		func() (time.Duration, error) { return c.LeaseLeft(ctx, id) },
		func() (time.Duration, error) { return s.RenewLease(ctx, id) },
		func() (time.Duration, error) { return c.RenewLease(ctx, id) },
	} {
		if left, err := ask(); err != nil || left <= 59*time.Minute || left > time.Hour {
			t.Errorf("%v, %v", left, err)
		}
	}
	must(t, s.RevokeLease(ctx, id))
	if n := s.Len(); n != 0 {
		t.Errorf("after RevokeLease there are %d keys", n)
	}
	must(t, s.RevokeLease(ctx, id))
	if left, err := s.LeaseLeft(ctx, id); err != nil || left != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := s.SetIf(ctx, "/a", []byte("1"), WithLeaseID(id)); !errors.Is(err, ErrLeaseEnded) {
		t.Errorf("a key is attached to a lease that has ended: %v", err)
	}

	// A client's lease ends at the server, too.
	theirs, err := c.Grant(ctx, time.Hour)
	must(t, err)
	must(t, s.RevokeLease(ctx, theirs.ID()))
	if left, err := c.LeaseLeft(ctx, theirs.ID()); err != nil || left != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestServerGrantsNoWrongLeases(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	if _, err := s.Grant(ctx, time.Millisecond); !errors.Is(err, errLeaseTime) {
		t.Error(err)
	}
	if _, err := s.LeaseLeft(ctx, "x"); !errors.Is(err, errLeaseID) {
		t.Error(err)
	}
	old := startServer(t, ServerOptions{Model: 5})
	if _, err := old.Grant(ctx, time.Second); !errors.Is(err, ErrNoLeases) {
		t.Error(err)
	}
	if err := old.RevokeLease(ctx, (&Lease{}).ID()); !errors.Is(err, ErrNoLeases) {
		t.Error(err)
	}
	id, err := s.Grant(ctx, time.Second)
	must(t, err)
	must(t, s.Close())
	if _, err := s.LeaseLeft(ctx, id); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// A server of a pair that is not active has nothing to do with leases; it becomes active if somebody asks
// for it, and the other one is not heard.
func TestAskMakesALoneServerActive(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, _ := pairOptions(t)
	s, err := NewServer(po)
	must(t, err)
	defer s.Close()
	if s.Active() {
		t.Error("it is active before it serves")
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	<-s.Ready()
	if _, err := s.Grant(ctx, time.Hour); !errors.Is(err, ErrStandby) {
		t.Errorf("a server that waits has granted a lease: %v", err)
	}
	if _, err := s.LeaseLeft(ctx, (&Lease{}).ID()); !errors.Is(err, ErrStandby) {
		t.Error(err)
	}
	eventually(t, "it would take over", func() bool { return s.Status().TakesOver })
	if s.Active() {
		t.Error("it is active although nobody asks")
	}
	s.Ask()
	eventually(t, "it is active", s.Active)
	_, err = s.Grant(ctx, time.Hour)
	must(t, err)
	must(t, s.Close())
	must(t, <-ended)
	if s.Active() {
		t.Error("it is active after Close")
	}
}
