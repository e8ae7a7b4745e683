package chp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
	"clustermap/sockets"
)

// A server whose context has ended before it begins ends as cleanly as one whose
// context ends later, and one that is closed still says so.
func TestServeWithEndedContext(t *testing.T) {
	t.Parallel()
	s, err := NewServer(ServerOptions{Logger: quiet()})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	must(t, s.Serve(ctx))
	if err := s.Serve(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("serving again: %v", err)
	}
	must(t, s.Close())
}

// After a purge that leaves a little in every segment, the log shrinks to its live part
// although no update comes any more: of a server and of its replica.
func TestMemoryComesBackWhileIdle(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{HeartbeatInterval: 10 * time.Millisecond})
	c := startClient(t, s, ClientOptions{})
	ctx := testContext(t)
	const keys, kept = 60_000, 20
	value := make([]byte, 500)
	for i := range keys {
		must(t, c.Set(ctx, fmt.Sprint("/key/", i), value))
	}
	for i := range keys {
		if i%kept != 0 {
			must(t, c.Delete(ctx, fmt.Sprint("/key/", i)))
		}
	}
	_, err := c.SetSync(ctx, "/last", value)
	must(t, err)

	eventually(t, "the server's log shrinks", func() bool {
		tidied := false
		s.sequencer.Between(func(now *order.Moment) { tidied = now.State.Store.Tidied() })
		return tidied
	})
	eventually(t, "the replica's log shrinks", func() bool {
		c.lock.Lock()
		defer c.lock.Unlock()
		return c.live.Now().Store.Tidied()
	})
	for i := 0; i < keys; i += kept {
		if v, ok := s.Get(fmt.Sprint("/key/", i)); !ok || len(v) != len(value) {
			t.Fatalf("key %d is lost", i)
		}
	}
	if s.Len() != keys/kept+1 || c.Len() != s.Len() {
		t.Errorf("%d keys at the server, %d in the replica", s.Len(), c.Len())
	}
}

// While very many keys expire, heartbeats go on, and so do updates; and a portion of
// them is published as one batch.
func TestHeartbeatsDuringMassExpiry(t *testing.T) {
	t.Parallel()
	s, err := NewServer(ServerOptions{Logger: quiet(), HeartbeatInterval: time.Millisecond})
	must(t, err)
	ctx := testContext(t)
	must(t, s.Listen(ctx))

	const n = 30_000
	now := s.live.Now()
	due := timer.Now()
	for i := range n {
		seq := now.Last() + 1
		now.SkipTo(seq)
		key := fmt.Appendf(nil, "/session/%07d", i)
		now.Store.Put(key, seq, nil, []byte("ttl=1\n"), []byte("v"))
		now.Deadlines.Set(kvmsg.HashKey(key), seq, due)
	}
	sub, err := sockets.NewSub(sockets.Options{RecvHWM: -1, RecvHWMBytes: -1})
	must(t, err)
	defer sub.Close()
	must(t, sub.Connect(s.Endpoints().Publisher))
	must(t, sub.Subscribe(""))
	must(t, sub.WaitSubscribed(ctx))

	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	defer func() {
		must(t, s.Close())
		must(t, <-served)
	}()
	var b sockets.Batch
	defer b.Release()
	deleted, between := 0, 0
	last := int64(-1)
	for deleted < n {
		must(t, sub.RecvBatch(ctx, &b))
		for i := range b.Len() {
			m := toKV(t, b.Message(i).AppendFrames(nil))
			if m.key == "HUGZ" {
				if deleted > 0 && deleted < n {
					between++
				}
				continue
			}
			if last >= 0 && m.seq != last+1 || m.value != "" {
				t.Fatalf("after #%d comes %+v", last, m)
			}
			last = m.seq
			deleted++
		}
	}
	if between == 0 {
		t.Errorf("no heartbeat between %d deletions", n)
	}
	if s.Len() != 0 || s.Stats().Expired != n {
		t.Errorf("%d keys left, %d expired", s.Len(), s.Stats().Expired)
	}
}
