package chp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/sockets"
)

// A server whose context has ended before it begins ends as cleanly as one whose
// context ends later, and one that is closed still says so.
func TestH25_ServeWithEndedContext(t *testing.T) {
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

// After a purge that leaves a little in every segment, the log shrinks to what is
// live although no update comes any more: of a server and of its replica.
func TestH25_MemoryComesBackWhileIdle(t *testing.T) {
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

	tidied := func(st *store) bool {
		now := st.stats()
		return now.logOctets <= st.compactLimit() && now.idleOctets <= st.log.spare() && st.log.burst <= maxSegment
	}
	eventually(t, "the server's log shrinks", func() bool {
		s.sequencer.mu.Lock()
		defer s.sequencer.mu.Unlock()
		return tidied(s.sequencer.store)
	})
	eventually(t, "the replica's log shrinks", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return tidied(c.state.Load())
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

// The wheel and the index get smaller when most of what they held has gone.
func TestH16_WheelAndIndexShrink(t *testing.T) {
	t.Parallel()
	const n = 120_000
	now := time.Unix(0, 0)
	w := newWheel(now)
	st := newStore(storeOptions{})
	key := func(i int) []byte { return fmt.Appendf(nil, "/key/%d", i) }
	for i := range n {
		w.add(hashKey(key(i)), int64(i), now.Add(time.Hour))
		st.put(key(i), int64(i+1), nil, nil, []byte("v"))
	}
	measure := func() (chunks, peaks, slots int) {
		for i := range w.byHash {
			peaks += w.byHash[i].peak
		}
		for i := range st.tables {
			if table := st.tables[i].Load(); table != nil {
				slots += len(table.slots)
			}
		}
		return len(w.chunks), peaks, slots
	}
	chunks, peaks, slots := measure()
	for i := range n {
		if i%10 != 0 {
			w.remove(hashKey(key(i)))
			st.put(key(i), 0, nil, nil, nil)
		}
	}
	// No table is less than an eighth full. By that a quarter of the slots is left on
	// average; keys fall into the tables by a random hash, so a few stay larger.
	for i := range st.tables {
		if n := len(st.tables[i].Load().slots); n > minTable && int(st.counts[i].used) < n/8 {
			t.Errorf("table %d has %d slots for %d keys", i, n, st.counts[i].used)
		}
	}
	if c, p, s := measure(); c > chunks/5 || p > peaks/2 || s > slots/3 {
		t.Errorf("with a tenth of the keys: %d chunks of %d, maps for %d of %d, %d slots of %d", c, chunks, p, peaks, s, slots)
	}
	fired := 0
	for w.advance(now.Add(2*time.Hour), 1000, func(uint64, int64) { fired++ }) {
	}
	if fired != n/10 || w.len() != 0 || len(w.chunks) > 2 {
		t.Errorf("%d of %d fired, %d left, in %d chunks", fired, n/10, w.len(), len(w.chunks))
	}
}

// While very many keys expire, heartbeats go on, and so do updates; and a portion of
// them is published as one batch.
func TestH9_HeartbeatsDuringMassExpiry(t *testing.T) {
	t.Parallel()
	s, err := NewServer(ServerOptions{Logger: quiet(), HeartbeatInterval: time.Millisecond})
	must(t, err)
	ctx := testContext(t)
	must(t, s.Listen(ctx))

	const n = 30_000
	q := &s.sequencer
	due := time.Now()
	for i := range n {
		seq := q.last.Add(1)
		key := fmt.Appendf(nil, "/session/%07d", i)
		q.store.put(key, seq, nil, []byte("ttl=1\n"), []byte("v"))
		q.wheel.add(hashKey(key), seq, due)
	}
	sub, err := sockets.NewSub(sockets.Options{RecvHWM: -1, RecvHWMOctets: -1})
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
