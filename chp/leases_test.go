package chp

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
)

// A client holds 100,000 leases with two goroutines, and renews each in time; when its server does not answer any
// more, each ends at its deadline, and none before.
func TestManyLeasesOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 100_000
		if raceDetector {
			n = 10_000
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		silent := make(chan struct{})
		var asked atomic.Int64
		var h leases
		h.setUp(func(ctx context.Context, ids []kvmsg.LeaseID, left []time.Duration) (time.Time, error) {
			if asked.Add(1); len(ids) > wire.MaxLeases {
				t.Errorf("a question has %d leases", len(ids))
			}
			sent := time.Now()
			select {
			case <-silent:
				<-ctx.Done()
				return sent, ctx.Err()
			case <-time.After(time.Millisecond):
			}
			for i := range ids {
				left[i] = time.Hour
			}
			return sent, nil
		})
		before := runtime.NumGoroutine()
		held := make([]*Lease, n)
		began := time.Now()
		for i := range held {
			// Their times are from 10 s to 20 s, and they do not begin together.
			l := &Lease{c: &Client{}, ttl: 10*time.Second + time.Duration(i%1000)*10*time.Millisecond, done: make(chan struct{})}
			binary.BigEndian.PutUint64(l.id[:], uint64(i))
			l.grant(began.Add(-time.Duration(i%3000) * time.Millisecond))
			if err := h.hold(ctx, l); err != nil {
				t.Fatal(err)
			}
			held[i] = l
		}
		if now := runtime.NumGoroutine(); now > before+2 {
			t.Errorf("%d goroutines for %d leases", now-before, n)
		}
		time.Sleep(time.Minute)
		if most := 60 * n / wire.MaxLeases / 2; asked.Load() > int64(most) {
			t.Errorf("%d questions in a minute, want at most %d", asked.Load(), most)
		}
		close(silent)
		synctest.Wait()
		ended := func(l *Lease) bool {
			select {
			case <-l.done:
				return true
			default:
				return false
			}
		}
		all := func() (n int) {
			for _, l := range held {
				if over := !time.Now().Before(l.when[byDeadline]); ended(l) != over {
					t.Fatalf("a lease has ended: %v, its time is over: %v", ended(l), over)
				} else if over {
					n++
				}
			}
			return n
		}
		if n := all(); n > 0 {
			t.Errorf("%d leases have ended while they were renewed", n)
		}
		for i := range 2000 {
			time.Sleep(10 * time.Millisecond)
			if synctest.Wait(); i%50 == 0 {
				all()
			}
		}
		if got := all(); got != n {
			t.Errorf("%d of %d leases have ended", got, n)
		}
		cancel()
		h.running.Wait()
		if err := h.hold(ctx, held[0]); !errors.Is(err, ErrClosed) {
			t.Errorf("a new lease at the end: %v", err)
		}
	})
}

// Revoke waits for the server as long as its context says, or until Close of the client, and the lease has ended for its holder at once.
func TestRevokeWithoutServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	first, err := c.Grant(ctx, time.Hour)
	must(t, err)
	second, err := c.Grant(ctx, time.Hour)
	must(t, err)
	third, err := c.Grant(ctx, time.Hour)
	must(t, err)
	must(t, s.Close())
	short, cancel := context.WithCancel(ctx)
	cancel()
	if err := first.Revoke(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Revoke: %v", err)
	}
	if <-first.Done(); first.Err() == nil {
		t.Error("the lease goes on")
	}
	revoked := make(chan error)
	go func() { revoked <- second.Revoke(ctx) }()
	<-second.Done()
	must(t, c.Close())
	if err := <-revoked; !errors.Is(err, ErrClosed) {
		t.Errorf("Revoke after Close: %v", err)
	}
	if <-third.Done(); !errors.Is(third.Err(), ErrClosed) {
		t.Errorf("a lease after Close: %v", third.Err())
	}
	if _, err := c.Grant(ctx, time.Hour); !errors.Is(err, ErrClosed) {
		t.Errorf("Grant after Close: %v", err)
	}
}
