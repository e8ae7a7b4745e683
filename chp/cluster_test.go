package chp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// digest is a hash of a whole map that does not depend on its order, and the
// number of its keys.
type digest struct {
	sum  uint64
	keys int
}

var digestSeed = maphash.MakeSeed()

func (d *digest) add(key, value []byte) {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(key)))
	h.Write(size[:])
	h.Write(key)
	h.Write(value)
	d.sum += h.Sum64()
	d.keys++
}

// serverState returns the digest of a server's map, and its sequence, at one
// moment.
func serverState(s *Server) (digest, int64) {
	c := s.live.Cut()
	defer c.Release()
	var d digest
	c.Records(func(r kvmsg.Record) bool {
		d.add(r.Key(), r.Value())
		return true
	})
	return d, c.Sequence
}

func clientState(c *Client) digest {
	var d digest
	c.Range(func(key, value []byte) bool {
		d.add(key, value)
		return true
	})
	return d
}

func startClient(t testing.TB, s *Server, o ClientOptions) *Client {
	t.Helper()
	o.Servers = []string{s.Endpoints().Snapshot}
	// A busy machine may keep a process waiting for seconds: tests of other features
	// shall not depend on these limits.
	if o.SyncTimeout == 0 {
		o.SyncTimeout = hang
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = hang
	}
	c, err := NewClient(o)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// waitEqual waits until a client has come to the server's sequence, which must
// not move any more, and compares their contents.
func waitEqual(t testing.TB, s *Server, c *Client) {
	t.Helper()
	want, seq := serverState(s)
	eventually(t, fmt.Sprintf("the client is active at %d", seq), func() bool { return c.State() == StateActive && c.Sequence() >= seq })
	if got := clientState(c); got != want {
		t.Errorf("client has %d keys with digest %x, server %d with %x", got.keys, got.sum, want.keys, want.sum)
	}
}

// mirror applies the events of a watch to a map as they come. The function that it
// returns waits for a sequence and returns the map.
func mirror(t testing.TB, w *Watch) func(seq int64) map[string]string {
	ctx, cancel := context.WithCancel(context.Background())
	content, last := map[string]string{}, atomic.Int64{}
	ended := make(chan error, 1)
	go func() {
		for {
			e, err := w.Next(ctx)
			if err != nil {
				ended <- err
				return
			}
			switch e.Op {
			case OpSet:
				content[string(e.Key)] = string(e.Value)
			case OpDelete:
				delete(content, string(e.Key))
			}
			last.Store(e.Sequence)
		}
	}()
	t.Cleanup(cancel)
	return func(seq int64) map[string]string {
		t.Helper()
		eventually(t, fmt.Sprintf("the watch is at %d", seq), func() bool { return last.Load() >= seq || len(ended) > 0 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || last.Load() < seq {
			t.Fatalf("the watch came to %d of %d: %v", last.Load(), seq, err)
		}
		return content
	}
}

// Clients that join at any moment of continuous sets, deletions and TTL
// expiries end with the server's state, and a watch that follows from the
// beginning ends with it too.
func TestReplicasEqualServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{HeartbeatInterval: 20 * time.Millisecond})
	// Room for all updates until the others are in sync.
	watcher := startClient(t, s, ClientOptions{WatchQueue: 1 << 30})
	must(t, watcher.WaitActive(ctx))
	w, err := watcher.Watch()
	must(t, err)
	defer w.Close()
	replayed := mirror(t, w)

	stop := make(chan struct{})
	var writers sync.WaitGroup
	for id := range 3 {
		c := startClient(t, s, ClientOptions{Subtrees: []string{"/flush/"}})
		must(t, c.WaitActive(ctx))
		writers.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(id)))
			for i := 0; ; i++ {
				select {
				case <-stop:
					_, err := c.SetSync(ctx, fmt.Sprintf("/flush/%d", id), []byte("end"))
					if err != nil {
						t.Error(err)
					}
					return
				default:
				}
				key := fmt.Sprintf("/k/%d", r.IntN(5000))
				var err error
				switch n := r.IntN(10); {
				case n == 0:
					err = c.Delete(ctx, key)
				case n == 1:
					err = c.Set(ctx, key, fmt.Appendf(nil, "brief %d.%d", id, i), WithTTL(time.Duration(1+r.IntN(200))*time.Millisecond))
				default:
					err = c.Set(ctx, key, fmt.Appendf(nil, "%d.%d", id, i))
				}
				if err != nil {
					t.Error(err)
					return
				}
				if i%64 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	var late []*Client
	for range 6 {
		c := startClient(t, s, ClientOptions{})
		must(t, c.WaitActive(ctx))
		late = append(late, c)
	}
	close(stop)
	writers.Wait()
	// Let the keys that still have a TTL expire: the last one ends within its time.
	timers := func() (n int) {
		s.sequencer.Between(func(now *order.Moment) { n = now.State.Deadlines.Len() })
		return n
	}
	eventually(t, "all keys with a time to live expire", func() bool { return timers() == 0 })
	if s.Stats().Expired == 0 {
		t.Error("nothing expired: the test does not test")
	}
	for _, c := range append(late, watcher) {
		waitEqual(t, s, c)
	}
	if n := len(s.Stats().Refused); n != 0 {
		t.Errorf("updates were refused: %v", s.Stats().Refused)
	}

	want, seq := serverState(s)
	content := replayed(seq)
	var got digest
	for k, v := range content {
		got.add([]byte(k), []byte(v))
	}
	if got != want {
		t.Errorf("the watch ends with %d keys, the server has %d", got.keys, want.keys)
	}
}

// A subscriber that stops reading costs bounded memory, does not delay others, and is
// disconnected.
func TestStalledSubscriber(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const queue = 1 << 20
	s := startServer(t, ServerOptions{SubscriberQueue: queue})
	gone := make(chan error, 1)
	stalled, err := sockets.NewSub(sockets.Options{
		RecvHWM: 1, RecvBuffer: 64 << 10, Linger: sockets.LingerNone, ReconnectInterval: -1,
		Monitor: func(e sockets.Event) {
			if e.Kind == sockets.EventDisconnected {
				gone <- e.Err
			}
		},
	})
	must(t, err)
	defer stalled.Close()
	must(t, stalled.Subscribe(""))
	must(t, stalled.Connect(s.Endpoints().Publisher))
	must(t, stalled.WaitSubscribed(ctx))
	c := startClient(t, s, ClientOptions{})
	must(t, c.WaitActive(ctx))

	value := make([]byte, 4096)
	most := 0
	for i := 0; ; i++ {
		must(t, c.Set(ctx, fmt.Sprintf("/k/%d", i%100), value))
		if i%16 != 0 {
			continue
		}
		_, err := c.SetSync(ctx, "/k/sync", value)
		must(t, err)
		stats := s.Stats().Subscribers
		for _, p := range stats {
			most = max(most, p.QueuedBytes)
		}
		if len(stats) == 1 {
			break
		}
	}
	if most < queue/2 || most > queue+1<<20 {
		t.Errorf("at most %d bytes were queued; the bound is %d", most, queue)
	}
	waitEqual(t, s, c)
}

// A client whose process stops reading for a while is disconnected and, once
// it reads again, ends with the server's state.
func TestStalledClientRecovers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{SubscriberQueue: 1 << 20})
	writer := startClient(t, s, ClientOptions{Subtrees: []string{"/none/"}})
	block, blocked := make(chan struct{}), make(chan struct{})
	c := startClient(t, s, ClientOptions{})
	must(t, c.WaitActive(ctx))
	must(t, writer.WaitActive(ctx)) // now the server has two subscribers
	// The replica applies nothing while its mutex is held.
	go func() {
		c.mu.Lock()
		close(blocked)
		<-block
		c.mu.Unlock()
	}()
	<-blocked
	value := make([]byte, 4096)
	for i := 0; i%16 != 0 || len(s.Stats().Subscribers) == 2; i++ {
		must(t, writer.Set(ctx, fmt.Sprintf("/k/%d", i%1000), value))
		if i%100 == 0 {
			must(t, writer.Delete(ctx, fmt.Sprintf("/k/%d", (i*7)%1000)))
		}
	}
	close(block)
	_, err := writer.SetSync(ctx, "/none/last", value) // all before it is published, too
	must(t, err)
	waitEqual(t, s, c)
	if n := sessions(c); n < 2 {
		t.Errorf("the client has followed the server %d times; it was to be disconnected and come back", n)
	}
}
