package chp

import (
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// throughProxies makes a client that reaches a server through proxies.
func throughProxies(t testing.TB, s *Server, o ClientOptions) (*Client, [3]*proxy) {
	t.Helper()
	proxies, address := newProxies(t, s.Endpoints())
	o.Servers, o.restless = []string{address}, true
	c, err := NewClient(o)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c, proxies
}

// lead has a client that reaches its server through proxies find another one there.
func lead(proxies [3]*proxy, s *Server) {
	e := s.Endpoints()
	for i, target := range []string{e.Snapshot, e.Publisher, e.Collector} {
		proxies[i].redirect(target)
	}
	for _, p := range proxies {
		p.each((*link).reset)
	}
}

// faults breaks the connections behind proxies, n times, in every way: at once, or
// so that the server gets updates in flight to the collector later, perhaps after the
// client has sent them again.
func faults(t *testing.T, c *Client, proxies [3]*proxy, n int, r *rand.Rand) {
	ctx := testContext(t)
	var late []*link
	release := func(keep int) {
		for len(late) > keep {
			late[0].release()
			late = late[1:]
		}
	}
	defer release(0)
	for range n {
		must(t, c.WaitActive(ctx))
		time.Sleep(rand.N(2 * time.Millisecond))
		if p := proxies[r.IntN(3)]; p != proxies[2] || r.IntN(2) == 0 {
			p.each((*link).reset)
		} else {
			var held []*link
			p.each(func(l *link) { l.hold(); held = append(held, l) })
			time.Sleep(rand.N(time.Millisecond))
			for _, l := range held {
				l.cut()
			}
			late = append(late, held...)
		}
		release(r.IntN(3))
		time.Sleep(rand.N(time.Millisecond))
	}
}

// recorded is the values of some keys that a watch has seen, each of which is one writer's
// and has the values 1, 2, 3 …
type recorded struct {
	mu   sync.Mutex
	seen map[string][]Event // by key
	stop func()
}

// recordHistory watches a server's map.
func recordHistory(t *testing.T, s *Server) *recorded {
	t.Helper()
	c := startClient(t, s, ClientOptions{})
	must(t, c.WaitActive(testContext(t))) // or it would see the first updates as a snapshot
	w, err := c.Watch()
	must(t, err)
	h := &recorded{seen: map[string][]Event{}}
	ctx, cancel := context.WithCancel(testContext(t))
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			e, err := w.Next(ctx)
			if err != nil {
				return
			}
			if e.Op == OpSynced {
				continue
			}
			h.mu.Lock()
			h.seen[string(e.Key)] = append(h.seen[string(e.Key)], Event{Op: e.Op, Cause: e.Cause, Sequence: e.Sequence, Value: append([]byte(nil), e.Value...)})
			h.mu.Unlock()
		}
	})
	h.stop = func() {
		eventually(t, "the watch has seen everything", func() bool { return c.Sequence() == s.Sequence() })
		must(t, c.Set(ctx, "end", []byte("0")))
		eventually(t, "the watch has seen the end", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.seen["end"]) > 0
		})
		cancel()
		reading.Wait()
		must(t, w.Close())
	}
	t.Cleanup(cancel)
	return h
}

// After any number of broken connections every update of a client is applied once and in
// order, SetSync and Flush know it, and nothing is uncertain while the server lives.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	cuts := 400
	if testing.Short() || raceDetector {
		cuts = 120
	}
	ctx := testContext(t)
	server := startServer(t, ServerOptions{HeartbeatInterval: 20 * time.Millisecond})
	h := recordHistory(t, server)
	const clients = 4
	type outcome struct{ n, seq int64 }
	var mu sync.Mutex
	synced := map[string][]outcome{}
	counts := map[string]int{}
	var all []*Client
	var running sync.WaitGroup
	for i := range clients {
		o := ClientOptions{}
		if i%2 == 1 {
			// Its plain updates do not come back.
			o.Subtrees, o.SendQueue = []string{fmt.Sprintf("/sync/%d/", i)}, 32<<10
		}
		c, proxies := throughProxies(t, server, o)
		all = append(all, c)
		var over atomic.Bool
		running.Go(func() {
			faults(t, c, proxies, cuts/clients, rand.New(rand.NewPCG(uint64(i), 1)))
			over.Store(true)
		})
		for w := range 2 {
			running.Go(func() {
				key := fmt.Sprintf("/sync/%d/%d", i, w)
				for n := int64(1); !over.Load(); n++ {
					seq, err := c.SetSync(ctx, key, strconv.AppendInt(nil, n, 10))
					if err != nil {
						t.Errorf("SetSync of %s: %v", key, err)
						return
					}
					if v, _ := c.Get(key); string(v) != strconv.FormatInt(n, 10) {
						t.Errorf("%s = %s after SetSync of %d", key, v, n)
					}
					mu.Lock()
					synced[key] = append(synced[key], outcome{n, seq})
					counts[key] = int(n)
					mu.Unlock()
				}
			})
		}
		running.Go(func() {
			key := fmt.Sprintf("/set/%d", i)
			n := 0
			for !over.Load() {
				for range 100 {
					n++
					if err := c.Set(ctx, key, strconv.AppendInt(nil, int64(n), 10)); err != nil {
						t.Errorf("Set of %s: %v", key, err)
						return
					}
				}
				time.Sleep(rand.N(2 * time.Millisecond))
				if n%1000 == 0 {
					if err := c.Flush(ctx); err != nil {
						t.Errorf("Flush: %v", err)
					}
				}
			}
			mu.Lock()
			counts[key] = n
			mu.Unlock()
		})
	}
	running.Wait()
	syncs := uint64(0)
	for i, c := range all {
		must(t, c.Flush(ctx))
		// An update that does not come back is there before one that does.
		_, err := c.SetSync(ctx, fmt.Sprintf("/sync/%d/last", i), []byte("1"))
		must(t, err)
		syncs += sessions(c)
	}
	h.stop()
	for key, n := range counts {
		got := h.seen[key]
		if len(got) != n {
			t.Errorf("%s was set %d times, and applied %d times", key, n, len(got))
		}
		for i, e := range got {
			if string(e.Value) != strconv.Itoa(i+1) || e.Op != OpSet || e.Cause != CauseSet {
				t.Fatalf("%s: update %d is %v %v %s", key, i+1, e.Op, e.Cause, e.Value)
			}
		}
	}
	for key, list := range synced {
		for i, o := range list {
			at, next := h.seen[key][i].Sequence, int64(1<<62)
			if i+1 < len(h.seen[key]) {
				next = h.seen[key][i+1].Sequence
			}
			if o.seq < at || o.seq >= next {
				t.Errorf("SetSync of %s = %d returned %d; it was %d, and the next one %d", key, o.n, o.seq, at, next)
			}
		}
	}
	stats := server.Stats()
	t.Logf("%d sessions, %d updates, %d repeated in vain, refused %v", syncs, stats.Updates, stats.Repeated, stats.Refused)
	if syncs <= clients {
		t.Error("nothing was broken")
	}
}

// An update that the former connection delivers late, before or after it was sent again,
// is applied once and settled.
func TestLateDeliveryAndRepetition(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{HeartbeatInterval: hang})
	h := recordHistory(t, server)
	c, proxies := throughProxies(t, server, ClientOptions{HeartbeatTimeout: hang})
	_, err := c.SetSync(ctx, "k", []byte("1"))
	must(t, err)
	var old *link
	proxies[2].each(func(l *link) { l.hold(); old = l })
	done := setSync(ctx, c, "k", "2")
	eventually(t, "the proxy holds the update", func() bool { return old.holding() > 0 })
	old.cut()
	got := <-done
	must(t, got.err) // by the new connection
	old.release()
	_, err = c.SetSync(ctx, "k", []byte("3"))
	must(t, err)

	// This time it arrives late, and the new connection is slow.
	proxies[2].each(func(l *link) { l.hold(); old = l })
	done = setSync(ctx, c, "k", "4")
	eventually(t, "the proxy holds the update", func() bool { return old.holding() > 0 })
	syncs := sessions(c)
	old.cut()
	must(t, waitSyncs(ctx, c, syncs+1))
	proxies[2].each(func(l *link) {
		if l != old {
			l.hold()
		}
	})
	old.release()
	got = <-done
	must(t, got.err)
	proxies[2].each((*link).release)
	_, err = c.SetSync(ctx, "k", []byte("5"))
	must(t, err)
	h.stop()
	for i, e := range h.seen["k"] {
		if string(e.Value) != strconv.Itoa(i+1) {
			t.Errorf("update %d is %s", i+1, e.Value)
		}
	}
	if n := len(h.seen["k"]); n != 5 {
		t.Errorf("%d updates were applied, want 5", n)
	}
}

// An update whose refusal was lost with the connection is not reported as applied,
// although later ones were: nor is one that is refused when it arrives late.
func TestLostRefusal(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			server := startServer(t, ServerOptions{MaxValueSize: 1000, MaxMapBytes: 1800, HeartbeatInterval: hang})
			c, proxies := throughProxies(t, server, ClientOptions{})
			_, err := c.SetSync(ctx, "first", []byte("x"))
			must(t, err)
			forgetLimit(c)
			// Nothing comes back from now on.
			for _, p := range proxies[:2] {
				p.each((*link).hold)
			}
			var old *link
			proxies[2].each(func(l *link) { old = l })
			old.hold()
			var results []chan synced
			for i, size := range []int{1001, 900, 999, 1} { // too large; fits; no room; fits
				before := old.holding()
				results = append(results, setSync(ctx, c, fmt.Sprint("k", i), strings.Repeat("x", size)))
				eventually(t, "the proxy has it", func() bool { return old.holding() > before+size })
			}
			if !late {
				old.release()
				eventually(t, "the server has them", func() bool { return server.Stats().Updates == 3 })
			}
			old.cut()
			for _, p := range proxies[:2] {
				p.each((*link).reset)
			}
			if late {
				// They arrive when the next session has begun, and are repeated.
				must(t, waitSyncs(ctx, c, 2))
				old.release()
			}
			for i, want := range []error{ErrRefused, nil, ErrRefused, nil} {
				if got := <-results[i]; !errors.Is(got.err, want) {
					t.Errorf("update %d: %v, want %v", i, got.err, want)
				} else if i == 2 && !late && !errors.Is(got.err, &MessageError{Reason: ReasonMapFull}) {
					t.Errorf("update %d: %v, want the reason", i, got.err)
				}
			}
		})
	}
}

// sessions returns how often a client has begun to follow a server.
func sessions(c *Client) uint64 {
	stats := c.Stats()
	return stats.Syncs + stats.Resumed
}

// waitSyncs waits until a client has begun to follow a server n times.
func waitSyncs(ctx context.Context, c *Client, n uint64) error {
	for sessions(c) < n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// A server that begins with another map says nothing about updates sent to the earlier
// one: they are uncertain, and not sent again.
func TestOtherMapIsUncertain(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first, second := startServer(t, ServerOptions{}), startServer(t, ServerOptions{})
	c, proxies := throughProxies(t, first, ClientOptions{})
	_, err := c.SetSync(ctx, "k", []byte("1"))
	must(t, err)
	proxies[2].each((*link).hold)
	done := setSync(ctx, c, "k", "2")
	var old *link
	proxies[2].each(func(l *link) { old = l })
	eventually(t, "the proxy holds the update", func() bool { return old.holding() > 0 })
	lead(proxies, second)
	if got := <-done; !errors.Is(got.err, ErrUncertain) {
		t.Errorf("SetSync: %v, want ErrUncertain", got.err)
	}
	_, err = c.SetSync(ctx, "other", []byte("x"))
	must(t, err)
	if v, ok := second.Get("k"); ok {
		t.Errorf("the second server has k = %s", v)
	}
	// Back at the first one numbers go on, and nothing is taken for a repetition.
	lead(proxies, first)
	must(t, waitSyncs(ctx, c, 3))
	_, err = c.SetSync(ctx, "k", []byte("3"))
	must(t, err)
	if v, _ := first.Get("k"); string(v) != "3" {
		t.Errorf("k = %s", v)
	}
}

// A server that restarts with the same map and origins, as one with a log does, goes
// on where it was: nothing is uncertain.
func TestSameMapOnAnotherServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first := startServer(t, ServerOptions{})
	c, proxies := throughProxies(t, first, ClientOptions{})
	_, err := c.SetSync(ctx, "k", []byte("1"))
	must(t, err)
	// This one is applied, and the client does not see it.
	proxies[1].each((*link).hold)
	applied := setSync(ctx, c, "applied", "x")
	eventually(t, "the server has it", func() bool { _, ok := first.Get("applied"); return ok })
	// This one gets nowhere.
	var old *link
	proxies[2].each(func(l *link) { l.hold(); old = l })
	lost := setSync(ctx, c, "lost", "x")
	eventually(t, "the proxy holds it", func() bool { return old.holding() > 0 })

	second := startServer(t, ServerOptions{Preload: func(yield func(Entry, error) bool) {
		for _, key := range []string{"k", "applied"} {
			value, _ := first.Get(key)
			if !yield(Entry{Key: []byte(key), Value: value}, nil) {
				return
			}
		}
	}})
	var before state.State // what makes the second map one that goes on with the first
	var origins [][]byte
	first.sequencer.Between(func(now *order.Moment) { before.ID, origins = now.State.ID, now.State.Clients.Portions() })
	second.sequencer.Between(func(now *order.Moment) {
		now.State.ID = before.ID
		for _, portion := range origins {
			if !now.State.Clients.Add(portion) {
				t.Error("the origins were refused")
			}
		}
	})
	lead(proxies, second)
	must(t, (<-applied).err)
	must(t, (<-lost).err)
	if updates := second.Stats().Updates; updates != 1 {
		t.Errorf("the second server took %d updates, want the one that was lost", updates)
	}
}

// A server that takes updates and publishes none makes Set wait, and SendQueue bounds the
// waiting updates.
func TestSetWaitsForWhatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	const queue = 64 << 10
	c, proxies := throughProxies(t, server, ClientOptions{SendQueue: queue, HeartbeatTimeout: hang, SyncTimeout: hang})
	must(t, c.WaitActive(ctx))
	proxies[1].each((*link).hold)
	value := make([]byte, 1000)
	sent := 0
	for sent <= queue/len(value) {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		err := c.Set(short, strconv.Itoa(sent), value)
		cancel()
		// Before the queue is half full it is the machine that was slow.
		if errors.Is(err, context.DeadlineExceeded) && sent >= queue/len(value)/2 {
			break
		}
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		must(t, err)
		sent++
	}
	if sent > queue/len(value) {
		t.Errorf("%d updates of %d bytes were sent, with a queue of %d bytes", sent, len(value), queue)
	}
	proxies[1].each((*link).release)
	must(t, c.Set(ctx, "goes on", value))
	must(t, c.Flush(ctx))
	if bytes, _ := c.writer.Pending(); bytes != 0 {
		t.Errorf("%d bytes are kept though all has come back", bytes)
	}
}

// A SetSync whose context ends while its update waits to be sent is never sent, and
// does not disturb the numbers of those behind it.
func TestDroppedUpdateLeavesNoGap(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c, proxies := throughProxies(t, server, ClientOptions{})
	_, err := c.SetSync(ctx, "k", []byte("1"))
	must(t, err)
	for i := range 20 {
		// Without a connection to the collector updates are only staged.
		proxies[2].each((*link).hold)
		short, cancel := context.WithCancel(ctx)
		given := setSync(short, c, fmt.Sprint("dropped", i), "x")
		kept := setSync(ctx, c, fmt.Sprint("kept", i), "x")
		if i%2 == 0 {
			eventually(t, "both are staged", func() bool { _, waits := c.writer.Pending(); return waits == 2 })
		}
		proxies[2].each((*link).reset)
		cancel()
		<-given
		got := <-kept
		must(t, got.err)
	}
	server.sequencer.Between(func(now *order.Moment) {
		for _, p := range now.State.Clients.ByID {
			if len(p.Skips) != 0 {
				t.Errorf("the server misses %v", p.Skips)
			}
		}
	})
}

// Updates outside of the client's subtrees do not come back. They are kept until the
// server tells that it has them, and sending many of them does not stop.
func TestUpdatesThatDoNotComeBack(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startServer(t, ServerOptions{})
	c, _ := throughProxies(t, server, ClientOptions{Subtrees: []string{"/mine/"}, SendQueue: 64 << 10})
	const n = 20_000
	for i := range n {
		must(t, c.Set(ctx, "/other/"+strconv.Itoa(i%10), []byte("some value of some bytes")))
	}
	eventually(t, "the server has all", func() bool { return server.Stats().Updates == n })
	if bytes, _ := c.writer.Pending(); bytes > 64<<10 {
		t.Errorf("%d bytes are kept", bytes)
	}
}
