//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"

	"clustermap/chp"
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
