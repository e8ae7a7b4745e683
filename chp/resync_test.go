package chp

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"clustermap/internal/interop"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// A guide's server whose publisher has dropped updates for a client that was too
// slow: the client sees the jump and takes a new snapshot.
func TestGapAtForeignServer(t *testing.T) {
	t.Parallel()
	for _, style := range cloneStyles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			p := cloneServer(t, "--style", style)
			c := cloneClient(t, ClientOptions{}, p)
			p.Call(cloneSet("/before", "x"), nil)
			wantClone(t, c, p)
			for i := range 100 {
				p.Call(interop.Op{"op": "lose", "key": fmt.Appendf(nil, "/lost/%d", i), "value": []byte("x")}, nil)
			}
			p.Call(cloneSet("/after", "x"), nil)
			eventually(t, "what was lost is there", func() bool { return c.Len() == 102 })
			wantClone(t, c, p)
			// On a slow machine a heartbeat comes before all are lost, and shows some.
			if stats := c.Stats(); stats.Gaps < 1 || stats.Gaps > 5 || stats.Syncs != stats.Gaps+1 {
				t.Errorf("%d gaps, %d snapshots; want about 1, and one more", stats.Gaps, stats.Syncs)
			}
		})
	}
}

// The last updates before a pause are missing: the guide's heartbeats have the
// server's sequence, and show it.
func TestLostTailAtForeignServer(t *testing.T) {
	t.Parallel()
	for _, style := range cloneStyles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			p := cloneServer(t, "--style", style)
			c := cloneClient(t, ClientOptions{}, p)
			p.Call(cloneSet("/before", "x"), nil)
			wantClone(t, c, p)
			heartbeats(t, p, 3) // with this sequence
			p.Call(interop.Op{"op": "lose", "key": []byte("/lost"), "value": []byte("x")}, nil)
			eventually(t, "what was lost is there", func() bool { _, ok := c.Get("/lost"); return ok })
			wantClone(t, c, p)
		})
	}
}

// heartbeats waits for the next heartbeats of a guide's server.
func heartbeats(t *testing.T, p *interop.Process, n int) {
	t.Helper()
	sub, err := sockets.NewSub(sockets.Options{})
	must(t, err)
	defer sub.Close()
	must(t, sub.Subscribe(kvmsg.KeyHUGZ))
	must(t, sub.Connect(fmt.Sprintf("tcp://127.0.0.1:%d", p.Port+1)))
	for range n {
		_, err := sub.Recv(testContext(t))
		must(t, err)
	}
}

// At a server that counts in steps every update is a jump. The client takes a
// snapshot for it at first, and then less and less often; updates go on.
func TestResyncsAreLimited(t *testing.T) {
	t.Parallel()
	s := newScripted(t, asPlain)
	c := followScripted(t, ClientOptions{}, s)
	s.answer(10)
	must(t, c.WaitActive(testContext(t)))
	s.kvpub(pub{"a", 20, "x"})
	s.answer(20, pub{"a", 20, "x"})
	eventually(t, "the second snapshot is in", func() bool { return c.Stats().Syncs == 2 && c.State() == StateActive })
	// On a slow machine the next snapshot's time may come meanwhile.
	ctx, cancel := context.WithCancel(s.ctx)
	var answering sync.WaitGroup
	defer answering.Wait()
	defer cancel()
	answering.Go(func() {
		for {
			m, err := s.router.Recv(ctx)
			if err != nil {
				return
			}
			s.kvsync(m[0], pub{"a", 520, "49"})
			s.kthxbai(m[0], 520, "")
		}
	})
	defer s.beat(0)()
	for i := range int64(50) {
		s.kvpub(pub{"a", 30 + 10*i, fmt.Sprint(i)})
	}
	eventually(t, "all updates are applied", func() bool { v, _ := c.Get("a"); return string(v) == "49" })
	if n := c.Stats().Syncs; n > 10 {
		t.Errorf("%d snapshots for 50 updates", n)
	}
}
