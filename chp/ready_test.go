package chp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/internal/loopback"
)

// A client that follows no server is not ready, at once and with the reason.
func TestReadyDoesNotWaitForAServer(t *testing.T) {
	t.Parallel()
	c, err := NewClient(ClientOptions{Servers: []string{"tcp://" + loopback.Own() + ":5556"}, Logger: quiet()})
	must(t, err)
	defer c.Close()
	err = c.Ready(testContext(t), 1<<40)
	var fault *NotActiveError
	if !errors.As(err, &fault) || !errors.Is(err, ErrNotFollowing) || errors.Is(err, context.DeadlineExceeded) || len(fault.Servers) != 1 {
		t.Errorf("%v", err)
	}
	must(t, c.Close())
	if err := c.Ready(testContext(t), 0); err == nil {
		t.Error("a closed client is ready")
	}
}

// A client is ready as long as its replica is at most maxLag updates behind the server, also one of
// a subtree in which nothing changes.
func TestReadyWithinMaxLag(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{HeartbeatInterval: hang})
	behind := startClient(t, s, ClientOptions{HeartbeatTimeout: 2 * hang})
	part := startClient(t, s, ClientOptions{HeartbeatTimeout: 2 * hang, Subtrees: []string{"/other/"}})
	must(t, behind.WaitActive(ctx))
	must(t, part.WaitActive(ctx))
	must(t, behind.Ready(ctx, 0))
	behind.lock.Lock() // nothing is applied meanwhile
	for i := range 10 {
		_, err := s.SetSync(ctx, fmt.Sprint("/k/", i), []byte("v"))
		must(t, err)
	}
	must(t, behind.Ready(ctx, 10))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err := behind.Ready(short, 9)
	behind.lock.Unlock()
	var lag *LagError
	if !errors.As(err, &lag) || lag.MaxLag != 9 || lag.Server != s.Endpoints().Snapshot || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	must(t, behind.Ready(ctx, 0))
	must(t, part.Ready(ctx, 0))
}
