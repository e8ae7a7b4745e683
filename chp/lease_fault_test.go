package chp

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A refresh that does not come back does not stop the next ones. A lease deletes its key
// also if its last update has not come back yet: whether the replica has an earlier one of
// the lease, or none.
func TestLeaseLateEchoes(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"an earlier update", "no key"} {
		t.Run(what, func(t *testing.T) { testLeaseLateEchoes(t, what == "no key") })
	}
}

func testLeaseLateEchoes(t *testing.T, absent bool) {
	t.Parallel()
	ctx := testContext(t)
	s := newScripted(t, asPlain)
	c := follow(t, ClientOptions{}, s)
	s.answer(7)
	leased := make(chan *Lease, 1)
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
	eventually(t, "the lease says so", func() bool { return errors.Is(l.Err(), context.DeadlineExceeded) })
	late := s.kvset()
	for range 2 {
		s.kvset() // after this update, so nobody waits for the earlier one
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
