package chp

import (
	"clustermap/chp/internal/order"
	"clustermap/sockets"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// TestNothingLeavesBeforeItIsCommitted holds updates back and looks at everything
// that a server tells: KVPUBs, heartbeats and snapshots.
func TestNothingLeavesBeforeItIsCommitted(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{HeartbeatInterval: 5 * time.Millisecond})
	c := startClient(t, s, ClientOptions{})
	ctx := context.Background()
	before, err := c.SetSync(ctx, "/before", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}

	q := &s.sequencer
	gate := holdAfter(s, before)
	const updates = 200
	for i := range updates {
		if err := c.Set(ctx, fmt.Sprintf("/held/%d", i), []byte("2")); err != nil {
			t.Fatal(err)
		}
		if i+1 == updates/2 { // so that no batch has updates of both halves
			eventually(t, "the first half is ordered", func() bool { return s.ordered() == before+updates/2 })
		}
	}
	eventually(t, "the updates are ordered", func() bool { return s.ordered() == before+updates })
	joins := startClient(t, s, ClientOptions{})
	must(t, joins.WaitActive(ctx))
	for _, c := range []*Client{c, joins} {
		if s.Sequence() != before || s.Len() != 1 || c.Sequence() != before || c.Len() != 1 {
			t.Fatalf("sequence %d and %d keys at the server, %d and %d at the client; want %d and 1", s.Sequence(), s.Len(), c.Sequence(), c.Len(), before)
		}
	}

	half := before + updates/2
	gate.commit(half)
	eventually(t, "what is committed is published", func() bool { return c.Sequence() >= half })
	gate.commit(math.MaxInt64)
	eventually(t, "the rest is published", func() bool { return c.Sequence() == before+updates })
	eventually(t, "the client that joined has it", func() bool { return joins.Len() == updates+1 })
	if n := q.Held(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
	if gaps := c.Stats().Gaps; gaps != 0 {
		t.Errorf("the client saw %d gaps", gaps)
	}
}

// TestHeldUpdatesAreBounded shows that the server takes no more than order.MaxHeld bytes
// of updates that cannot be committed, and goes on when they are.
func TestHeldUpdatesAreBounded(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{SendQueue: 2 * order.MaxHeld})
	q := &s.sequencer
	release := hold(s)
	ctx := testContext(t)
	const size, updates = 1 << 20, 48
	sent := make(chan error, 1)
	go func() {
		for i := range updates {
			if err := c.Set(ctx, fmt.Sprintf("/%d", i), make([]byte, size)); err != nil {
				sent <- err
				return
			}
		}
		sent <- c.Flush(ctx)
	}()
	held := q.Held
	eventually(t, "the bound is reached, and more has come", func() bool {
		return held() >= order.MaxHeld && slices.ContainsFunc(s.collector.Peers(), func(p sockets.PeerStats) bool { return p.PendingMessages > 0 })
	})
	if n := held(); n > order.MaxHeld+4*size {
		t.Errorf("%d bytes are held, the bound is %d", n, order.MaxHeld)
	}
	release()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}
