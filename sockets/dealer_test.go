package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
)

// TestDealerRoundRobin: each message goes to the next peer, including peers that are
// not connected yet.
func TestDealerRoundRobin(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dealer := open(t, NewDealer, Options{})
	var routers []*Router
	for range 3 {
		routers = append(routers, bind(t, NewRouter, Options{}))
		must(t, dealer.Connect(routers[len(routers)-1].LastEndpoint()))
	}
	const turns = 100
	for i := range 3 * turns {
		must(t, dealer.Send(ctx, fmt.Append(nil, i), []byte("second frame")))
	}
	for r, router := range routers {
		for turn := range turns {
			m, err := router.Recv(ctx)
			must(t, err)
			if string(m[1]) != fmt.Sprint(3*turn+r) || len(m) != 3 {
				t.Fatalf("router %d got %q instead of %d", r, m[1:], 3*turn+r)
			}
		}
	}
	// And so it is when one of them is gone.
	must(t, dealer.Disconnect(routers[1].LastEndpoint()))
	for i := range 2 * turns {
		must(t, dealer.Send(ctx, fmt.Append(nil, i)))
	}
	for turn := range turns {
		for r, router := range []*Router{routers[0], routers[2]} {
			m, err := router.Recv(ctx)
			must(t, err)
			if n := string(m[1]); n != fmt.Sprint(2*turn+r) && n != fmt.Sprint(2*turn+1-r) {
				t.Fatalf("router %d got %s in turn %d", r, n, turn)
			}
		}
	}
}

// TestDealerHWM: exactly SendHWM messages are queued for each peer, connected or
// not, and then Send waits.
func TestDealerHWM(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dealer := open(t, NewDealer, quick(Options{SendHWM: 7, Linger: LingerNone}))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := dealer.Send(ended, []byte("nobody")); !errors.Is(err, context.Canceled) {
		t.Errorf("without a peer: %v", err)
	}
	ends := []string{freePort(t), freePort(t)}
	for _, e := range ends {
		must(t, dealer.Connect(e))
	}
	for i := range 2 * 7 {
		must(t, dealer.Send(ctx, fmt.Append(nil, i)))
	}
	if err := dealer.Send(ended, []byte("too many")); !errors.Is(err, context.Canceled) {
		t.Errorf("with all full: %v", err)
	}
	for _, p := range dealer.Peers() {
		if p.QueuedMessages != 7 || p.Connected || p.Remote != "" || p.Drops != 0 {
			t.Errorf("%+v", p)
		}
	}
	// One more waits until one of them comes up.
	result := make(chan error)
	go func() { result <- dealer.Send(ctx, []byte("14")) }()
	router := open(t, NewRouter, Options{})
	must(t, router.Bind(ctx, ends[1]))
	must(t, <-result)
	for _, want := range []string{"1", "3", "5", "7", "9", "11", "13", "14"} {
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[1]) != want {
			t.Errorf("%q, want %s", m[1], want)
		}
	}
}

// TestDealerAccepted: a bound DEALER sends to its accepted peers in turn, but not to
// those that have disconnected.
func TestDealerAccepted(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	dealer := bind(t, NewDealer, Options{Monitor: seen.Tell})
	result := make(chan error)
	go func() { result <- dealer.Send(ctx, []byte("first")) }() // waits for a peer
	a := dialRaw(t, dealer.LastEndpoint()).Greet("DEALER", nil)
	must(t, <-result)
	if m := a.Message(); string(m[0]) != "first" {
		t.Errorf("%q", m)
	}
	b := dialRaw(t, dealer.LastEndpoint()).Greet("REP", nil)
	b.Sync()
	for range 10 {
		must(t, dealer.Send(ctx, []byte("x")))
	}
	for range 5 {
		a.Message()
		b.Message()
	}
	a.Conn.Close()
	seen.Await(t, EventDisconnected)
	for range 5 {
		must(t, dealer.Send(ctx, []byte("y")))
		b.Message()
	}
	b.Send(wire("to", "the", "dealer"))
	wants(t, dealer, "to the dealer")
}

// TestDealerReconnect: queued messages survive the end of a connection. Messages
// arrive completely, in order and never twice; messages that were written, even in
// part, may be lost.
func TestDealerReconnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	dealer := open(t, NewDealer, quick(Options{SendHWM: 50, Linger: LingerNone}))
	must(t, dealer.Connect(endpoint))
	middle := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, i%5*20_000) }
	stop := make(chan struct{})
	var sender sync.WaitGroup
	defer sender.Wait()
	sender.Go(func() {
		for i := 0; ; i++ {
			// The number is in front and at the end, to see that it is whole.
			number := fmt.Append(nil, i)
			select {
			case <-stop:
				_ = dealer.Send(ctx, number, []byte("end"), number)
				return
			default:
			}
			if dealer.Send(ctx, number, middle(i), number) != nil {
				return
			}
		}
	})
	const rounds = 20
	next, lost := 0, 0
	for round := range rounds {
		r := accept().Greet("ROUTER", nil)
		if round == rounds-1 {
			close(stop)
		}
		for n := 0; ; n++ {
			if n > round && round < rounds-1 {
				r.Conn.Close() // most likely in the middle of a message
				break
			}
			m := r.Message()
			i, err := strconv.Atoi(string(m[0]))
			must(t, err)
			if i < next {
				t.Fatalf("%d came after %d", i, next-1)
			}
			if n > 0 && i != next {
				t.Fatalf("%d came after %d on the same connection", i, next-1)
			}
			lost += i - next
			next = i + 1
			if string(m[1]) == "end" {
				break
			}
			if !bytes.Equal(m[0], m[2]) || !bytes.Equal(m[1], middle(i)) {
				t.Fatalf("message %d is not whole", i)
			}
		}
	}
	t.Logf("%d of %d were lost in the kernel's buffers", lost, next)
}

// TestDealerUnsent: no message is lost unless a connection has begun to write it,
// however many connections end.
func TestDealerUnsent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	seen := newEvents()
	dealer := open(t, NewDealer, quick(Options{SendHWM: 100, Monitor: seen.Tell}))
	must(t, dealer.Connect(endpoint))
	first := accept().Greet("ROUTER", nil)
	seen.Await(t, EventHandshakeSucceeded)
	must(t, dealer.Send(ctx, plug))
	eventually(t, "the plug is taken", func() bool { return dealer.Peers()[0].QueuedMessages == 0 })
	first.Begun()
	for i := range 50 {
		must(t, dealer.Send(ctx, fmt.Append(nil, i)))
	}
	first.Conn.Close()
	seen.Await(t, EventDisconnected)
	// Meanwhile unconnected, between the two.
	for i := range 25 {
		must(t, dealer.Send(ctx, fmt.Append(nil, 50+i)))
	}
	second := accept().Greet("ROUTER", nil)
	for i := range 75 {
		if m := second.Message(); string(m[0]) != fmt.Sprint(i) {
			t.Fatalf("%q instead of %d", m[0], i)
		}
	}
	second.Sync() // the plug does not come again
}

// TestDealerFairQueue: messages are received from all peers in turn.
func TestDealerFairQueue(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dealer := bind(t, NewDealer, Options{RecvHWM: 5})
	const peers, each = 4, 5
	for i := range peers {
		r := dialRaw(t, dealer.LastEndpoint()).Greet("ROUTER", nil)
		for range each {
			r.Send(wire(fmt.Sprint(i)))
		}
	}
	eventually(t, "all have sent", func() bool {
		n := 0
		for _, p := range dealer.Peers() {
			n += p.PendingMessages
		}
		return n == peers*each
	})
	for range each {
		turn := map[string]bool{}
		for range peers {
			m, err := dealer.Recv(ctx)
			must(t, err)
			turn[string(m[0])] = true
		}
		if len(turn) != peers {
			t.Errorf("in one turn came messages of %v only", turn)
		}
	}
}

// TestDealerBackPressure: if the application does not receive, the socket queues
// exactly RecvHWM messages and stops reading; no message is lost.
func TestDealerBackPressure(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a := bind(t, NewDealer, Options{RecvHWM: 10})
	b := open(t, NewDealer, Options{SendHWM: 10})
	must(t, b.Connect(a.LastEndpoint()))
	body := make([]byte, 100_000)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	sent := 0
	stopped := func() bool {
		// Send is refused, and that stays so for all that happens.
		err := b.Send(ended, fmt.Append(nil, sent), body)
		if err == nil {
			sent++
		}
		return err != nil && a.stopped()
	}
	eventually(t, "the sender is stopped", stopped)
	for i := range sent {
		m, err := a.Recv(ctx)
		must(t, err)
		if string(m[0]) != fmt.Sprint(i) {
			t.Fatalf("%q instead of %d", m[0], i)
		}
	}
	must(t, b.Send(ctx, []byte("more")))
	_, err := a.Recv(ctx)
	must(t, err)
}

// stopped reports whether there is a peer whose reader waits with a full queue.
func (s *socket) stopped() bool {
	peers := s.core.Pipes()
	if len(peers) == 0 {
		return false
	}
	size, _, waiting := s.core.In.Look(&peers[0].In)
	return waiting > 0 && size.Messages == s.opts().RecvHWM
}

// TestDealerConcurrent: many senders and receivers on both sides of several
// connections: every message arrives whole and once.
func TestDealerConcurrent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a := bind(t, NewDealer, Options{SendHWM: 5, RecvHWM: 5})
	const connections, senders, each = 3, 4, 500
	var others []*Dealer
	for range connections {
		d := open(t, NewDealer, Options{SendHWM: 5, RecvHWM: 5})
		must(t, d.Connect(a.LastEndpoint()))
		others = append(others, d)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	came := map[string]int{}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	var receivers sync.WaitGroup
	for i := range 6 {
		receivers.Go(func() {
			d := others[i%connections]
			for {
				m, err := d.Recv(stop)
				if err != nil {
					return
				}
				for _, f := range m {
					if !bytes.Equal(f, m[0]) {
						t.Errorf("frames of several messages: %q", m)
					}
				}
				mu.Lock()
				came[string(m[0])]++
				if len(came) == senders*each {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for s := range senders {
		wg.Go(func() {
			for n := range each {
				f := fmt.Append(nil, s, "/", n)
				if err := a.Send(ctx, f, f, f); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	receivers.Wait()
	for key, n := range came {
		if n != 1 {
			t.Errorf("%s came %d times", key, n)
		}
	}
	if len(came) != senders*each {
		t.Errorf("%d messages came", len(came))
	}
}

func TestDealerErrors(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dealer := open(t, NewDealer, Options{MaxMessageSize: 300, Linger: LingerNone})
	must(t, dealer.Connect(freePort(t)))
	if err := dealer.Send(ctx); !errors.Is(err, ErrNoFrames) {
		t.Errorf("no frames: %v", err)
	}
	must(t, dealer.Send(ctx, make([]byte, 291)))
	if err := dealer.Send(ctx, make([]byte, 292)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// BenchmarkDealerRouter measures a round trip.
func BenchmarkDealerRouter(b *testing.B) {
	ctx := testContext(b)
	router := bind(b, NewRouter, Options{})
	dealer := open(b, NewDealer, Options{})
	must(b, dealer.Connect(router.LastEndpoint()))
	go func() {
		var batch Batch
		for router.RecvBatch(ctx, &batch) == nil {
			for i := range batch.Len() {
				_ = router.sendWire(ctx, batch.Peer(), batch.Message(i), 1, nil)
			}
		}
	}()
	body := make([]byte, 32)
	var batch Batch
	b.ReportAllocs()
	for b.Loop() {
		must(b, dealer.Send(ctx, body))
		must(b, dealer.RecvBatch(ctx, &batch))
	}
	batch.Release()
}
