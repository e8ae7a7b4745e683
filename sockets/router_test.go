package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"clustermap/internal/queue"
)

func TestRouterDealer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	dealer := open(t, NewDealer, Options{Identity: []byte("me")})
	must(t, dealer.Connect(router.LastEndpoint()))
	for i := range 100 {
		must(t, dealer.Send(ctx, fmt.Append(nil, i), make([]byte, i*1000)))
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[0]) != "me" || len(m[2]) != i*1000 {
			t.Fatalf("%q", m[0])
		}
		must(t, router.Send(ctx, m...))
		m, err = dealer.Recv(ctx)
		must(t, err)
		if string(m[0]) != fmt.Sprint(i) || len(m[1]) != i*1000 {
			t.Fatalf("%q", m[0])
		}
	}
}

// TestRouterIdentities: own ones are used as they are, of any bytes; the
// others get generated ones, all different.
func TestRouterIdentities(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{Identity: []byte("router")})
	for _, id := range []string{"a", "\x01\x00\xff", strings.Repeat("x", 255), "\x00odd"} {
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte(id))
		r.Send(wire("hello"))
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[0]) != id {
			t.Fatalf("%q, want %q", m[0], id)
		}
		must(t, router.Send(ctx, []byte(id), []byte("answer"), nil))
		if got := r.Message(); len(got) != 2 || string(got[0]) != "answer" {
			t.Errorf("%q", got)
		}
	}
	seen := map[string]bool{}
	for i := range 20 {
		identity := []byte{}
		if i%2 == 0 {
			identity = nil // READY without the property
		}
		r := dialRaw(t, router.LastEndpoint()).Greet("REQ", identity)
		r.Send(wire("", "hello"))
		m, err := router.Recv(ctx)
		must(t, err)
		if len(m[0]) != 5 || m[0][0] != 0 || seen[string(m[0])] {
			t.Fatalf("generated %q", m[0])
		}
		seen[string(m[0])] = true
		must(t, router.Send(ctx, m[0], nil, fmt.Append(nil, i)))
		if got := r.Message(); string(got[1]) != fmt.Sprint(i) {
			t.Errorf("%q", got)
		}
	}
}

// TestRouterDuplicate: a second peer of the same identity stays connected, its
// PINGs are answered, and its messages wait; the first one notices nothing. When that one
// has gone, the second is heard.
func TestRouterDuplicate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	recv := func() (Message, error) { return router.Recv(ctx) }
	first := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("same"))
	first.Sync()
	second := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("same"))
	e := seen.Await(t, EventPeerIgnored)
	if !errors.Is(e.Err, ErrIdentityInUse) || e.Remote != second.Conn.LocalAddr().String() {
		t.Errorf("%+v", e)
	}
	second.Sync()
	second.Send(wire("waits"))
	first.Send(wire("heard"))
	wantRecv(t, recv, "same", "heard")
	must(t, router.Send(ctx, []byte("same"), []byte("to the first")))
	if got := first.Message(); string(got[0]) != "to the first" {
		t.Errorf("%q", got)
	}
	if err := router.SendTo(ctx, e.Peer, []byte("by hand")); err != nil {
		t.Errorf("SendTo the ignored peer: %v", err)
	}
	if got := second.Message(); string(got[0]) != "by hand" {
		t.Errorf("%q", got)
	}
	third := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("same"))
	seen.Await(t, EventPeerIgnored)
	// Its end is not the first one's.
	third.Conn.Close()
	if e := seen.Await(t, EventDisconnected); e.Remote != third.Conn.LocalAddr().String() {
		t.Errorf("%+v", e)
	}
	must(t, router.Send(ctx, []byte("same"), []byte("still")))
	if got := first.Message(); string(got[0]) != "still" {
		t.Errorf("%q", got)
	}
	first.Conn.Close()
	if e := seen.Await(t, EventPeerAdmitted); e.Remote != second.Conn.LocalAddr().String() {
		t.Errorf("%+v", e)
	}
	wantRecv(t, recv, "same", "waits")
	must(t, router.Send(ctx, []byte("same"), []byte("to the second")))
	if got := second.Message(); string(got[0]) != "to the second" {
		t.Errorf("%q", got)
	}
}

// TestRouterComesBack: a peer that closes and comes back at once, under the
// same identity, is never taken for a second one.
func TestRouterComesBack(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := open(t, NewRouter, Options{Monitor: seen.Tell})
	router.routes.Grace = hang // on a busy machine the end of a connection is noticed late
	must(t, router.Bind(ctx, anyPort))
	var previous *raw
	for i := range 200 {
		// The new connection is there before the old one ends.
		r := dialRaw(t, router.LastEndpoint())
		r.Send(greeting(1))
		if previous != nil {
			previous.Conn.Close()
		}
		r.Send(ready("DEALER", []byte("same")), wire(fmt.Sprint(i)))
		r.Greeted()
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[1]) != fmt.Sprint(i) {
			t.Fatalf("%q instead of %d", m, i)
		}
		must(t, router.SendTo(ctx, seen.Await(t, EventHandshakeSucceeded).Peer, []byte("answer")))
		r.Message()
		previous = r
	}
	if n := seen.Count(EventPeerIgnored); n != 0 {
		t.Errorf("ignored %d times", n)
	}
}

// TestRouterUnroutable: unknown identities are dropped without an error, or
// reported with Mandatory; a lone identity is no message.
func TestRouterUnroutable(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, mandatory := range []bool{false, true} {
		seen := newEvents()
		router := bind(t, NewRouter, Options{Mandatory: mandatory, Monitor: seen.Tell})
		var want error
		if mandatory {
			want = ErrUnroutable
		}
		if err := router.Send(ctx, []byte("nobody"), []byte("x")); !errors.Is(err, want) {
			t.Errorf("mandatory %v: %v", mandatory, err)
		}
		must(t, router.Send(ctx, []byte("nobody")))
		if err := router.Send(ctx); !errors.Is(err, ErrNoFrames) {
			t.Errorf("no frames: %v", err)
		}
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("me"))
		peer := seen.Await(t, EventHandshakeSucceeded).Peer
		if string(peer.Identity()) != "me" {
			t.Errorf("identity %q", peer.Identity())
		}
		must(t, router.Send(ctx, []byte("me"), []byte("1")))
		must(t, router.SendTo(ctx, peer, []byte("2"), []byte("more")))
		must(t, router.sendWire(ctx, peer, append(wire("3"), wire("4")...), 2, nil))
		must(t, router.sendWire(ctx, peer, nil, 0, nil))
		must(t, router.Send(ctx, []byte("me")))
		for _, want := range []string{"1", "2", "3", "4"} {
			if m := r.Message(); string(m[0]) != want {
				t.Errorf("%q, want %s", m, want)
			}
		}
		r.Conn.Close()
		seen.Await(t, EventDisconnected)
		if err := router.Send(ctx, []byte("me"), []byte("x")); !errors.Is(err, want) {
			t.Errorf("mandatory %v, after its end: %v", mandatory, err)
		}
		if err := router.SendTo(ctx, peer, []byte("x")); !errors.Is(err, ErrUnroutable) {
			t.Errorf("SendTo after its end: %v", err)
		}
		l := newLender()
		if err := router.sendWire(ctx, peer, wire(strings.Repeat("x", queue.LendFrom)), 1, l); !errors.Is(err, ErrUnroutable) || l.Retained.Load() != 0 {
			t.Errorf("SendWire after its end: %v", err)
		}
	}
}

// TestRouterFull: a full peer's messages are dropped and counted, or waited
// for with Mandatory, SendTo and SendWire; its end ends the waiting.
func TestRouterFull(t *testing.T) {
	t.Parallel()
	for _, mandatory := range []bool{false, true} {
		seen := newEvents()
		router := bind(t, NewRouter, Options{Mandatory: mandatory, SendHWM: 5, Linger: LingerNone, Monitor: seen.Tell})
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("me"))
		peer := seen.Await(t, EventHandshakeSucceeded).Peer
		ctx := testContext(t)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		fill := func() {
			must(t, router.SendTo(ctx, peer, plug))
			eventually(t, "the plug is taken", func() bool { return router.Peers()[0].QueuedMessages == 0 })
			for i := range 5 {
				must(t, router.SendTo(ctx, peer, fmt.Append(nil, i)))
			}
		}
		fill()
		if err := router.SendTo(ended, peer, []byte("x")); !errors.Is(err, context.Canceled) {
			t.Errorf("SendTo: %v", err)
		}
		l := newLender()
		if err := router.sendWire(ended, peer, wire(string(plug[:queue.LendFrom])), 1, l); !errors.Is(err, context.Canceled) || l.Retained.Load() != 0 {
			t.Errorf("SendWire: %v", err)
		}
		err := router.Send(ended, []byte("me"), []byte("x"))
		if mandatory && !errors.Is(err, context.Canceled) || !mandatory && err != nil {
			t.Errorf("Send: %v", err)
		}
		if s := router.Peers()[0]; s.QueuedMessages != 5 || mandatory != (s.Drops == 0) {
			t.Errorf("mandatory %v: %+v", mandatory, s)
		}
		results := make(chan error)
		waiting := func(n int) {
			eventually(t, "they wait", func() bool { return peer.engine().Pipe().Out.Status().Waiting == n })
		}
		go func() { results <- router.SendTo(ctx, peer, []byte("5")) }()
		waiting(1)
		go func() { results <- router.sendWire(ctx, peer, wire("5"), 1, nil) }()
		waiting(2)
		r.Message() // the plug
		for i := range 7 {
			if m := r.Message(); string(m[0]) != fmt.Sprint(min(i, 5)) {
				t.Fatalf("%q instead of %d", m[0], i)
			}
		}
		must(t, <-results)
		must(t, <-results)

		fill()
		go func() { results <- router.SendTo(ctx, peer, []byte("x")) }()
		go func() { results <- router.sendWire(ctx, peer, wire("x"), 1, l) }()
		waiting(2)
		r.Conn.Close()
		for range 2 {
			if err := <-results; !errors.Is(err, ErrUnroutable) {
				t.Errorf("with the peer gone: %v", err)
			}
		}
	}
}

// TestRouterToRouter: a ROUTER that connects addresses its peer by the identity
// that the handshake told, and messages queued for one peer never go to the next one at
// the same endpoint.
func TestRouterToRouter(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	seen := newEvents()
	router := open(t, NewRouter, quick(Options{Mandatory: true, SendBuffer: 64 << 10, Monitor: seen.Tell}))
	must(t, router.Connect(endpoint))
	r := accept().Greet("ROUTER", []byte("one"))
	one := seen.Await(t, EventHandshakeSucceeded).Peer
	for range 100 {
		must(t, router.Send(ctx, []byte("one"), []byte("for one"), make([]byte, 100_000)))
	}
	r.Send(wire("from one"))
	r.Sync()
	r.Conn.Close()
	r = accept().Greet("ROUTER", []byte("two"))
	seen.Await(t, EventHandshakeSucceeded)
	if err := router.SendTo(ctx, one, []byte("late")); !errors.Is(err, ErrUnroutable) {
		t.Errorf("%v", err)
	}
	must(t, router.Send(ctx, []byte("two"), []byte("for two")))
	if m := r.Message(); string(m[0]) != "for two" {
		t.Errorf("%q", m[0])
	}
	// The first peer's messages are still its own.
	r.Send(wire("from two"))
	for _, want := range []string{"[one from one]", "[two from two]"} {
		m, err := router.Recv(ctx)
		must(t, err)
		if fmt.Sprint(texts(m)) != want {
			t.Errorf("%q, want %s", m, want)
		}
	}
}

// TestRouterRecvBatch: messages come without the identity, which is the
// batch's peer's; Recv puts it in front. Both can be mixed.
func TestRouterRecvBatch(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("me"))
	r.Send(bytes.Join([][]byte{wire("0"), wire("1", "x"), wire("2"), wire("3")}, nil))
	wants(t, router, "me 0")
	var b Batch
	for next := 1; next < 4; {
		must(t, router.RecvBatch(ctx, &b))
		if string(b.Peer().Identity()) != "me" {
			t.Errorf("%q", b.Peer().Identity())
		}
		for i := range b.Len() {
			if body, _ := b.Message(i).Next(); string(body) != fmt.Sprint(next) {
				t.Errorf("%q instead of %d", body, next)
			}
			s := b.engine().Spans()[i]
			if !bytes.Equal(b.engine().Wire()[s.Start:s.End], b.Message(i)) {
				t.Error("Spans and Message differ")
			}
			next++
		}
	}
	must(t, router.SendTo(ctx, b.Peer(), []byte("answer")))
	r.Message()
	b.Release()
	if b.Len() != 0 || b.engine().Wire() != nil || b.Peer() != nil {
		t.Error("a released batch is not empty")
	}
	b.Release()
}

// TestRouterMany: many dealers and senders, and many receivers: every multipart
// message arrives whole, once, and in its sender's order.
func TestRouterMany(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{SendHWM: 10, RecvHWM: 10, Mandatory: true})
	const dealers, senders, each = 4, 3, 300
	var wg, echoes sync.WaitGroup
	stop, cancel := context.WithCancel(ctx)
	// It echoes, from several goroutines at once.
	for i := range 4 {
		echoes.Go(func() {
			var b Batch
			defer b.Release()
			for {
				if i%2 == 0 {
					m, err := router.Recv(stop)
					if err != nil {
						return
					}
					if err := router.Send(ctx, m...); err != nil {
						t.Error(err)
					}
					continue
				}
				if router.RecvBatch(stop, &b) != nil {
					return
				}
				for i := range b.Len() {
					if err := router.SendTo(ctx, b.Peer(), b.Message(i).AppendFrames(nil)...); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for d := range dealers {
		dealer := open(t, NewDealer, Options{Identity: fmt.Append(nil, "dealer", d), SendHWM: 10, RecvHWM: 10})
		must(t, dealer.Connect(router.LastEndpoint()))
		for s := range senders {
			wg.Go(func() {
				for n := range each {
					frames := [][]byte{fmt.Append(nil, d), fmt.Append(nil, s), fmt.Append(nil, n)}
					for f := range n % 7 {
						frames = append(frames, bytes.Repeat([]byte{byte(n)}, f*100))
					}
					if err := dealer.Send(ctx, frames...); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		var mu sync.Mutex
		left := senders * each
		came := map[string]bool{}
		for range 2 {
			wg.Go(func() {
				for {
					mu.Lock()
					if left == 0 {
						mu.Unlock()
						return
					}
					left--
					mu.Unlock()
					m, err := dealer.Recv(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					var n int
					_, _ = fmt.Sscan(string(m[2]), &n)
					if string(m[0]) != fmt.Sprint(d) || len(m) != 3+n%7 {
						t.Errorf("%d frames of %q", len(m), m[:3])
						return
					}
					for f, body := range m[3:] {
						if !bytes.Equal(body, bytes.Repeat([]byte{byte(n)}, f*100)) {
							t.Errorf("frame %d of %q is another's", f, m[:3])
						}
					}
					mu.Lock()
					key := fmt.Sprintf("%s", m[1:3])
					if came[key] {
						t.Errorf("%s came twice", key)
					}
					came[key] = true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	cancel()
	echoes.Wait()
}

// TestRouterHandedOver: a connection that was made by Connect is not made again
// after its identity went to another peer.
func TestRouterHandedOver(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, quick(Options{Handover: true, Monitor: seen.Tell}))
	bound := router.LastEndpoint()
	endpoint, accept := listenRaw(t)
	must(t, router.Connect(endpoint))
	first := accept().Greet("DEALER", []byte("X"))
	first.Sync()
	attached(t, bound, "DEALER", "X")
	first.Ended()
	eventually(t, "the endpoint is given up", func() bool { return router.Disconnect(endpoint) != nil })
}

// TestRouterNotifyBatch: the notice is a batch of one empty message, and more
// notices than the queue has room for wait for the application.
func TestRouterNotifyBatch(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	router := open(t, NewRouter, quick(Options{Notify: NotifyConnect | NotifyDisconnect, RecvHWM: 1}))
	must(t, router.Connect(endpoint))
	const rounds = 5
	result := make(chan error, 1)
	go func() {
		var b Batch
		defer b.Release()
		for range 2 * rounds {
			if err := router.RecvBatch(ctx, &b); err != nil {
				result <- err
				return
			}
			if b.Len() != 1 || string(b.Message(0)) != "\x00\x00" || string(b.Peer().Identity()) != "X" {
				result <- fmt.Errorf("%d messages, %q", b.Len(), b.engine().Wire())
				return
			}
		}
		result <- nil
	}()
	for range rounds {
		accept().Greet("DEALER", []byte("X")).Conn.Close()
	}
	must(t, <-result)
}

// TestRouterInproc: the same without a network.
func TestRouterInproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var names Inproc
	const endpoint = "inproc://router"
	router := open(t, NewRouter, Options{Inproc: &names, Notify: NotifyConnect | NotifyDisconnect, Handover: true})
	dealer := open(t, NewDealer, Options{Inproc: &names, ProbeRouter: true, Identity: []byte("D")})
	must(t, dealer.Connect(endpoint))
	must(t, dealer.Send(ctx, []byte("early")))
	must(t, router.Bind(ctx, endpoint))
	recv := func() (Message, error) { return router.Recv(ctx) }
	wantRecv(t, recv, "D", "") // the notice
	wantRecv(t, recv, "D", "") // the probe
	wantRecv(t, recv, "D", "early")
	second := open(t, NewDealer, Options{Inproc: &names, Identity: []byte("D")})
	must(t, second.Connect(endpoint))
	wantRecv(t, recv, "D", "")
	must(t, router.Send(ctx, []byte("D"), []byte("to the second")))
	wantRecv(t, func() (Message, error) { return second.Recv(ctx) }, "to the second")
	must(t, second.Close())
	wantRecv(t, recv, "D", "")

	client := open(t, NewRouter, Options{Inproc: &names, Mandatory: true, Identity: []byte("C")})
	must(t, client.ConnectAs("inproc://later", []byte("S")))
	must(t, client.Send(ctx, []byte("S"), []byte("hello")))
	server := open(t, NewRouter, Options{Inproc: &names})
	must(t, server.Bind(ctx, "inproc://later"))
	wantRecv(t, func() (Message, error) { return server.Recv(ctx) }, "C", "hello")
	must(t, server.Send(ctx, []byte("C"), []byte("hello to you")))
	wantRecv(t, func() (Message, error) { return client.Recv(ctx) }, "S", "hello to you")
}

// TestRouterConnectAs: the name is taken from the call to Disconnect, over all
// connections, and unwritten messages wait for the next one.
func TestRouterConnectAs(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	seen := newEvents()
	router := bind(t, NewRouter, quick(Options{Mandatory: true, SendHWM: 2, Linger: LingerNone, Monitor: seen.Tell}))
	bound := router.LastEndpoint()
	for _, bad := range []string{"", "\x00zero", string(make([]byte, 256))} {
		var fault *OptionError
		if err := router.ConnectAs(endpoint, []byte(bad)); !errors.As(err, &fault) || fault.Field != "ConnectRoutingID" {
			t.Errorf("%.10q: %v", bad, err)
		}
	}
	var fault *EndpointError
	if err := router.ConnectAs("nowhere", []byte("A")); !errors.As(err, &fault) {
		t.Errorf("%v", err)
	}
	must(t, router.ConnectAs(endpoint, []byte("A")))
	if err := router.ConnectAs(freePort(t), []byte("A")); !errors.Is(err, ErrIdentityInUse) {
		t.Errorf("%v", err)
	}
	// A peer of that name is not let in.
	newcomer := dialRaw(t, bound).Greet("DEALER", []byte("A"))
	if e := seen.Await(t, EventPeerIgnored); !errors.Is(e.Err, ErrIdentityInUse) {
		t.Errorf("%v", e.Err)
	}
	newcomer.Conn.Close() // or it would be let in after Disconnect
	seen.Await(t, EventDisconnected)
	for i := range 2 {
		must(t, router.TrySend([]byte("A"), fmt.Append(nil, i)))
	}
	if err := router.TrySend([]byte("A"), []byte("2")); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("with a full queue: %v", err)
	}
	first := accept().Greet("ROUTER", []byte("whatever"))
	for i := range 2 {
		if m := first.Message(); string(m[0]) != fmt.Sprint(i) {
			t.Errorf("%q", m)
		}
	}
	must(t, router.Send(ctx, []byte("A"), plug))
	eventually(t, "the plug is taken", func() bool {
		for _, p := range router.Peers() {
			if string(p.Identity) == "A" && p.Endpoint == endpoint {
				return p.QueuedMessages == 0
			}
		}
		return false
	})
	first.Begun()
	must(t, router.Send(ctx, []byte("A"), []byte("kept")))
	first.Conn.Close()
	second := accept().Greet("ROUTER", nil)
	if m := second.Message(); string(m[0]) != "kept" {
		t.Errorf("%.10q", m[0])
	}
	second.Send(wire("hello"))
	wantRecv(t, func() (Message, error) { return router.Recv(ctx) }, "A", "hello")
	must(t, router.Disconnect(endpoint))
	if err := router.Send(ctx, []byte("A"), []byte("x")); !errors.Is(err, ErrUnroutable) {
		t.Errorf("%v", err)
	}
	must(t, router.ConnectAs(freePort(t), []byte("A")))
	must(t, router.Close())
	if err := router.ConnectAs(freePort(t), []byte("C")); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}
