//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/chp/recipes"
	"clustermap/internal/testenv"
)

// A server that is stopped for longer than a time to live expires nothing when it goes on:
// the updates that refresh its keys are still in flight.
func TestServeExpiryGraceAfterStop(t *testing.T) {
	t.Parallel()
	s := serveApart(t, "--port", "5556", "--expiry-grace", "1h")
	ctx := testenv.Context(t)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.endpoint}, HeartbeatTimeout: testenv.Hang, SyncTimeout: testenv.Hang})
	testenv.Must(t, err)
	defer c.Close()
	const ttl = 2 * time.Second
	for {
		began := time.Now()
		_, err := c.SetSync(ctx, "/k", []byte("1"), chp.WithTTL(ttl))
		testenv.Must(t, err)
		s.signal(syscall.SIGSTOP)
		intime := time.Since(began) < ttl/2
		time.Sleep(2 * ttl)
		s.signal(syscall.SIGCONT)
		if intime { // otherwise the key may have expired before
			break
		}
	}
	// Meanwhile a key of another server expires.
	other, err := chp.NewClient(chp.ClientOptions{Servers: []string{serve(t).endpoint}, HeartbeatTimeout: testenv.Hang, SyncTimeout: testenv.Hang})
	testenv.Must(t, err)
	defer other.Close()
	_, err = other.SetSync(ctx, "/k", []byte("1"), chp.WithTTL(time.Second))
	testenv.Must(t, err)
	testenv.Eventually(t, "a key expires", func() bool { return other.Len() == 0 })
	_, err = c.SetSync(ctx, "/last", []byte("1"))
	testenv.Must(t, err)
	if e, p := c.Lookup("/k"); p != chp.PresenceFound {
		t.Errorf("/k is %v: %+v; the server: %s", p, e, s.stderr.String())
	}
}

// A server that is stopped for longer than the time to live of registrations and locks ends none of their keys when
// it goes on. The holder of a lock has given up by then, and has to take it again.
func TestRegistrationsOutliveStandstill(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	const ttl, registrations = 3 * time.Second, 20
	for again := true; again; {
		s := serveApart(t, "--port", "5556", "--expiry-grace", "1h")
		owner, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.endpoint}, HeartbeatTimeout: testenv.Hang, SyncTimeout: testenv.Hang})
		testenv.Must(t, err)
		watcher, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.endpoint}, HeartbeatTimeout: testenv.Hang, SyncTimeout: testenv.Hang})
		testenv.Must(t, err)
		w, err := watcher.Watch()
		testenv.Must(t, err)
		mutex, err := recipes.NewMutex(owner, "/locks/a", recipes.Options{TTL: ttl})
		testenv.Must(t, err)
		began := time.Now()
		held, err := mutex.Lock(ctx)
		testenv.Must(t, err)
		var all []*chp.Registration
		for i := range registrations {
			r, err := owner.KeepAlive(ctx, fmt.Sprintf("/services/%d", i), []byte("here"), ttl)
			testenv.Must(t, err)
			all = append(all, r)
		}
		s.signal(syscall.SIGSTOP)
		again = time.Since(began) > ttl/2 // they may have ended before
		<-held.Done()
		for _, r := range all {
			testenv.Eventually(t, "the registration says so", func() bool { return r.Err() != nil })
		}
		testenv.Eventually(t, "the time to live is over", func() bool { return time.Since(began) > 2*ttl })
		s.signal(syscall.SIGCONT)
		for _, r := range all {
			testenv.Eventually(t, "it has its key", func() bool { return r.Err() == nil })
		}
		next, err := mutex.Lock(ctx)
		testenv.Must(t, err)
		if next.Token() <= held.Token() || held.Err() != recipes.ErrLost {
			t.Errorf("token %d after %d, %v", next.Token(), held.Token(), held.Err())
		}
		last, err := watcher.SetSync(ctx, "/last", []byte("1"))
		testenv.Must(t, err)
		for seen := int64(0); seen < last; {
			e, err := w.Next(ctx)
			testenv.Must(t, err)
			seen = max(seen, e.Sequence)
			if e.Op == chp.OpDelete && strings.HasPrefix(string(e.Key), "/services/") && !again {
				t.Errorf("%s is gone: %v", e.Key, e.Cause)
			}
		}
		testenv.Must(t, mutex.Close())
		testenv.Must(t, owner.Close())
		testenv.Must(t, watcher.Close())
		s.signal(syscall.SIGKILL)
		s.wait()
	}
}
