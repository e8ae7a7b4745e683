package freelance

import (
	"context"
	"strings"
	"testing"
	"time"

	"clustermap/internal/wake"
)

// fullQueue returns a client of two servers, the second one at an endpoint. The first one is
// suspended and its queue is full, with requests that have these results.
func fullQueue(t *testing.T, second string) (c *Client, large []<-chan result) {
	t.Helper()
	first := startProcess(t, "tcp://127.0.0.1:*")
	c = startClient(t, ClientOptions{
		Servers:      []string{first.endpoint, second},
		PingInterval: hang, ServerTTL: 2 * hang, MaxQueuedBytes: 1 << 20,
	}).alive(t)
	t.Cleanup(first.Suspend())
	for range 3 { // one is written in part, one fills the queue, one waits for room
		large = append(large, c.begin(testContext(t), "0s", strings.Repeat("x", 8<<20)))
	}
	l := c.links[0]
	eventually(t, "the queue is full", func() bool {
		return c.Servers()[0].Waiting == 3 && l.router.SendTo(wake.Ended, l.peer, ping) == context.Canceled
	})
	return c, large
}

// TestShareAfterFullQueue: the share of the second server begins when the request is sent to
// it, not when the first one's queue was found full.
func TestShareAfterFullQueue(t *testing.T) {
	t.Parallel()
	c, _ := fullQueue(t, startRaw(t).endpoint)
	begun := time.Now()
	done := c.begin(within(t, 2*time.Second), "x")
	var sent time.Time
	for sent.IsZero() {
		c.mu.Lock()
		for _, k := range c.pending {
			if len(k.tries) == 2 {
				sent = k.tries[1].sent
			}
		}
		c.mu.Unlock()
		select {
		case <-done: // this process did not run at that time
			begun = time.Now()
			done = c.begin(within(t, 2*time.Second), "x")
		case <-time.After(time.Millisecond):
		}
	}
	// The first server had half of the time.
	if waited := sent.Sub(begun); waited < 500*time.Millisecond {
		t.Errorf("the second server's share begins after %v", waited)
	}
}

// TestCancelWhileQueueIsFull: a request whose context is cancelled while it waits for room goes
// to no other server.
func TestCancelWhileQueueIsFull(t *testing.T) {
	t.Parallel()
	c, _ := fullQueue(t, startRaw(t).endpoint)
	ctx, cancel := context.WithCancel(testContext(t))
	done := c.begin(ctx, "x")
	eventually(t, "the request waits for room", func() bool { return c.Servers()[0].Waiting == 4 })
	cancel()
	if r := <-done; r.err != context.Canceled {
		t.Errorf("%v", r.err)
	}
	if n := c.Stats().Resent; n > 0 {
		t.Errorf("it was sent to %d servers more", n)
	}
}
