package chp

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Attempts at servers that were not tried yet follow each other soon; those at
// servers that were do not.
func TestAttemptGaps(t *testing.T) {
	t.Parallel()
	c := &Client{servers: make([]address, 2), opts: ClientOptions{SyncTimeout: 16 * time.Second}}
	for started, want := range map[int]time.Duration{1: 1, 2: 4, 3: 8, 4: 16, 5: 16, 1000: 16} {
		a := attempts{client: c, started: started}
		if got := a.gap(); got != want*time.Second {
			t.Errorf("after %d attempts: %v, want %d s", started, got, want)
		}
	}
	c.opts.SyncTimeout = 1<<63 - 1
	if got := (&attempts{client: c, started: 9}).gap(); got < time.Hour {
		t.Errorf("%v", got)
	}
}

// Room for another attempt is made by one that has heard nothing of its server, and
// is not the oldest.
func TestAttemptGivenUp(t *testing.T) {
	t.Parallel()
	c := &Client{ctx: t.Context(), servers: make([]address, 1)}
	a := attempts{client: c}
	for i := range maxAttempts {
		s := c.newSession(0, 0)
		s.answered.Store(i == 1)
		a.running = append(a.running, s)
	}
	a.giveUp()
	for i, s := range a.running {
		cause := context.Cause(s.ctx)
		if want := i == 2; errors.Is(cause, ErrSilent) != want {
			t.Errorf("attempt %d: %v", i, cause)
		}
		s.answered.Store(true)
		s.fail(nil)
	}
	a.giveUp() // none
}

// A server of this package that sends heartbeats may take longer than SyncTimeout to
// send a snapshot: it has much to do.
func TestBusyServerIsNotSilent(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asOurs)
	defer s.beat(0)()
	c := follow(t, ClientOptions{SyncTimeout: 4 * time.Second, OnFailure: func(_ string, err error) { t.Error(err) }}, s)
	id, subtree := s.ask()
	time.Sleep(6 * time.Second)
	s.kvsync(id, pub{"k", 1, "v"})
	s.kthxbai(id, 1, subtree)
	must(t, c.WaitActive(testContext(t)))
	s.nobodyAsks()
}
