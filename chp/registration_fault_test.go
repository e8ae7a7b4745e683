package chp

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A refresh that does not come back does not stop the next ones. A registration deletes its key
// also if its last update has not come back yet: whether the replica has an earlier one of
// the registration, or none.
func TestRegistrationLateEchoes(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"an earlier update", "no key"} {
		t.Run(what, func(t *testing.T) { testLeaseLateEchoes(t, what == "no key") })
	}
}

func testLeaseLateEchoes(t *testing.T, absent bool) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	s.answer(7)
	leased := make(chan *Registration, 1)
	go func() {
		l, err := c.keepAlive(ctx, "/k", []byte("v"), time.Hour, 10*time.Millisecond, nil)
		if err != nil {
			t.Error(err)
		}
		leased <- l
	}()
	echo := func(seq int64) {
		t.Helper()
		u := s.kvset()
		s.publish(u.key, seq, u.uuid, "ttl=3600\n", u.value)
	}
	echo(8)
	l := <-leased
	for range 4 {
		s.kvset()
	}
	eventually(t, "the registration says so", func() bool { return errors.Is(l.Err(), context.DeadlineExceeded) })
	late := s.kvset()
	for range 2 {
		s.kvset() // after this update, so the earlier one is no longer waited for
	}
	if absent {
		late.value = ""
	}
	s.publish(late.key, 9, late.uuid, "ttl=3600\n", late.value)
	eventually(t, "the late update", func() bool { return c.Sequence() == 9 })
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	for u := s.kvset(); u.value != ""; u = s.kvset() {
	}
	must(t, <-closed)
}

// KeepAlive outlives a server that ends before the first update has come back.
func TestRegistrationBeginsAcrossRestart(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	s.answer(7)
	leased := make(chan error, 1)
	go func() {
		l, err := c.KeepAlive(ctx, "/k", []byte("v"), time.Hour)
		if err == nil {
			defer l.Stop()
		}
		leased <- err
	}()
	s.kvset()
	s.close()
	var err error
	s, err = scriptedAt(t, nil, s.host, s.port)
	must(t, err)
	s.answer(20)
	u := s.kvset()
	s.publish(u.key, 21, u.uuid, "ttl=3600\n", u.value)
	must(t, <-leased)
}

// An update that a server skips, without a fault, is the caller's to repeat.
func TestRegistrationBeginsOnlyAcrossFaults(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	s.answer(7)
	must(t, c.WaitActive(ctx))
	leased := make(chan error, 1)
	go func() {
		_, err := c.KeepAlive(ctx, "/k", []byte("v"), time.Hour)
		leased <- err
	}()
	s.kvset()
	must(t, c.Set(ctx, "/later", []byte("v")))
	u := s.kvset()
	s.publish(u.key, 8, u.uuid, "", u.value)
	if err := <-leased; !errors.Is(err, ErrUncertain) {
		t.Errorf("%v, want ErrUncertain", err)
	}
}

// A registration does not delete the key of a successor at a server with another map, whose
// sequences may be lower than that of the registration's last update.
func TestRegistrationLeavesSuccessor(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c, successor := startClient(t, s, ClientOptions{}), startClient(t, s, ClientOptions{})
	seq, err := successor.SetSync(ctx, "/k", []byte("v"))
	must(t, err)
	eventually(t, "the client has the key", func() bool { _, ok := c.Get("/k"); return ok })
	for _, attached := range []bool{false, true} {
		l := &Registration{client: c, key: "/k", seq: seq + 1}
		if attached {
			l.lease, err = c.Grant(ctx, time.Hour)
			must(t, err)
		}
		l.delete()
		must(t, c.Flush(ctx))
		if _, ok := s.Get("/k"); !ok {
			t.Fatal("the successor's key is gone")
		}
	}
	(&Registration{client: c, key: "/k", seq: seq}).delete()
	eventually(t, "the registration's own key is gone, and so is the lease", func() bool { return s.Len() == 0 })
}
