package sockets

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Rows of libzmq's tests that concern ROUTER, and the options that go with it.

// attached connects a raw peer and waits until the socket has attached it.
func attached(t *testing.T, endpoint, socketType string, identity string) *raw {
	t.Helper()
	r := dialRaw(t, endpoint).Greet(socketType, []byte(identity))
	r.Sync()
	return r
}

// TestLibzmq_router_mandatory: an unroutable message is dropped, or refused.
func TestLibzmq_router_mandatory(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, mandatory := range []bool{false, true} {
		router := bind(t, NewRouter, Options{Mandatory: mandatory})
		for _, send := range []func() error{
			func() error { return router.Send(ctx, []byte("nobody"), []byte("x")) },
			func() error { return router.TrySend([]byte("nobody"), []byte("x")) },
		} {
			if err := send(); mandatory != errors.Is(err, ErrUnroutable) || !mandatory && err != nil {
				t.Errorf("mandatory %v: %v", mandatory, err)
			}
		}
		r := attached(t, router.LastEndpoint(), "DEALER", "X")
		must(t, router.TrySend([]byte("X"), []byte("hello")))
		if m := r.Message(); string(m[0]) != "hello" {
			t.Errorf("%q", m)
		}
		if _, err := router.TryRecv(); !errors.Is(err, ErrWouldBlock) {
			t.Errorf("TryRecv: %v", err)
		}
	}
}

// TestLibzmq_router_mandatory_hwm: a ROUTER takes only a few messages for a DEALER that
// does not receive. A full queue and a missing peer are different errors.
func TestLibzmq_router_mandatory_hwm(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{
		Mandatory: true, SendHWM: 1, SendTimeout: time.Millisecond, Linger: LingerNone, Monitor: seen.Tell, SendBuffer: 16 << 10,
	})
	dealer := open(t, NewDealer, Options{Identity: []byte("idle"), RecvHWM: 1, RecvBuffer: 16 << 10})
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("Hello")))
	wantRecv(t, func() (Message, error) { return router.Recv(ctx) }, "idle", "Hello")
	taken := 0
	var err error
	for _, send := range []func(...[]byte) error{router.TrySend, func(m ...[]byte) error { return router.Send(ctx, m...) }} {
		for err = nil; err == nil; taken++ {
			err = send([]byte("idle"), make([]byte, 64<<10))
		}
	}
	if taken -= 2; taken >= 10 || !errors.Is(err, ErrTimeout) {
		t.Errorf("%d messages are taken, then %v", taken, err)
	}
	must(t, dealer.Close())
	seen.Await(t, EventDisconnected)

	r := attached(t, router.LastEndpoint(), "DEALER", "X")
	for err = nil; err == nil; {
		err = router.TrySend([]byte("X"), plug)
	}
	if !errors.Is(err, ErrWouldBlock) {
		t.Errorf("TrySend to a full queue: %v", err)
	}
	for err = nil; err == nil; { // the writer may have taken one more
		err = router.Send(ctx, []byte("X"), plug)
	}
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("Send to a full queue: %v", err)
	}
	r.Conn.Close()
	seen.Await(t, EventDisconnected)
	if err := router.Send(ctx, []byte("X"), plug); !errors.Is(err, ErrUnroutable) {
		t.Errorf("Send to who has gone: %v", err)
	}
}

// TestLibzmq_router_handover: with the option the new peer gets the identity, without it
// the old one keeps it.
func TestLibzmq_router_handover(t *testing.T) {
	t.Parallel()
	for _, handover := range []bool{false, true} {
		t.Run(fmt.Sprint(handover), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			seen := newEvents()
			router := bind(t, NewRouter, Options{
				Handover: handover, Mandatory: true, Notify: NotifyConnect | NotifyDisconnect, Monitor: seen.Tell,
			})
			recv := func() (Message, error) { return router.Recv(ctx) }
			first := attached(t, router.LastEndpoint(), "DEALER", "X")
			wantRecv(t, recv, "X", "")
			first.Send(wire("hello"))
			wantRecv(t, recv, "X", "hello")
			second := attached(t, router.LastEndpoint(), "DEALER", "X")
			if !handover {
				second.Send(wire("ignored"))
				must(t, router.Send(ctx, []byte("X"), []byte("still")))
				if m := first.Message(); string(m[0]) != "still" {
					t.Errorf("%q", m)
				}
				return
			}
			wantRecv(t, recv, "X", "")
			first.Ended()
			if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrHandedOver) {
				t.Errorf("%v", e.Err)
			}
			must(t, router.Send(ctx, []byte("X"), []byte("to the second")))
			if m := second.Message(); string(m[0]) != "to the second" {
				t.Errorf("%q", m)
			}
			second.Send(wire("from the second"))
			// The end of the first connection is not the end of X.
			wantRecv(t, recv, "X", "from the second")
			second.Conn.Close()
			wantRecv(t, recv, "X", "")
			if err := router.Send(ctx, []byte("X"), []byte("y")); !errors.Is(err, ErrUnroutable) {
				t.Errorf("%v", err)
			}
		})
	}
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

// TestLibzmq_router_notify: an empty message when a peer comes, or goes, or
// both, in order with its messages.
func TestLibzmq_router_notify(t *testing.T) {
	t.Parallel()
	for _, notify := range []Notify{0, NotifyConnect, NotifyDisconnect, NotifyConnect | NotifyDisconnect} {
		t.Run(fmt.Sprint(notify), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			router := bind(t, NewRouter, Options{Notify: notify})
			recv := func() (Message, error) { return router.Recv(ctx) }
			for _, id := range []string{"X", "Y"} {
				r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte(id))
				if notify&NotifyConnect != 0 {
					wantRecv(t, recv, id, "")
				}
				r.Send(wire("one"), wire("two", "frames"))
				r.Sync()
				r.Conn.Close()
				wantRecv(t, recv, id, "one")
				wantRecv(t, recv, id, "two", "frames")
				if notify&NotifyDisconnect != 0 {
					wantRecv(t, recv, id, "")
				}
			}
			if m, err := router.TryRecv(); !errors.Is(err, ErrWouldBlock) {
				t.Errorf("%q, %v", m, err)
			}
		})
	}
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

// TestLibzmq_probe_router: an empty message comes before all others, on every
// new connection.
func TestLibzmq_probe_router(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	recv := func() (Message, error) { return router.Recv(ctx) }
	dealer := open(t, NewDealer, Options{ProbeRouter: true, Identity: []byte("D")})
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("hello")))
	wantRecv(t, recv, "D", "")
	wantRecv(t, recv, "D", "hello")
	must(t, router.Send(ctx, []byte("D"), []byte("hello to you")))
	wantRecv(t, func() (Message, error) { return dealer.Recv(ctx) }, "hello to you")

	req := open(t, NewReq, Options{ProbeRouter: true, Identity: []byte("R")})
	must(t, req.Connect(router.LastEndpoint()))
	wantRecv(t, recv, "R", "")

	other := open(t, NewRouter, Options{ProbeRouter: true, Identity: []byte("O")})
	must(t, other.Connect(router.LastEndpoint()))
	wantRecv(t, recv, "O", "")

	// Accepted, and again after a reconnection.
	endpoint, accept := listenRaw(t)
	again := open(t, NewDealer, quick(Options{ProbeRouter: true}))
	must(t, again.Connect(endpoint))
	must(t, again.Bind(ctx, anyPort))
	for range 3 {
		r := accept().Greet("ROUTER", nil)
		if m := r.Message(); len(m) != 1 || len(m[0]) != 0 {
			t.Errorf("%q", m)
		}
		r.Conn.Close()
	}
	if m := dialRaw(t, again.LastEndpoint()).Greet("ROUTER", nil).Message(); len(m) != 1 || len(m[0]) != 0 {
		t.Errorf("%q", m)
	}
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

// TestLibzmq_connect_rid: a ROUTER that names its peer itself can send to it at
// once, with any identity that the peer announces.
func TestLibzmq_connect_rid(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"", "own name"} {
		t.Run(own, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			server := bind(t, NewRouter, Options{Identity: []byte(own)})
			client := open(t, NewRouter, Options{Mandatory: true, Identity: []byte("client")})
			must(t, client.ConnectAs(server.LastEndpoint(), []byte("server")))
			for i := range 3 {
				must(t, client.Send(ctx, []byte("server"), fmt.Append(nil, i)))
				wantRecv(t, func() (Message, error) { return server.Recv(ctx) }, "client", fmt.Sprint(i))
				must(t, server.Send(ctx, []byte("client"), fmt.Append(nil, i)))
				wantRecv(t, func() (Message, error) { return client.Recv(ctx) }, "server", fmt.Sprint(i))
			}
			if err := client.Send(ctx, []byte("own name"), []byte("x")); !errors.Is(err, ErrUnroutable) {
				t.Errorf("by its own name: %v", err)
			}
			if p := client.Peers()[0]; string(p.Identity) != "server" {
				t.Errorf("%+v", p)
			}
		})
	}
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

// TestLibzmq_issue_566: a ROUTER reaches a DEALER by its name, time and again.
func TestLibzmq_issue_566(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{Mandatory: true})
	for i := range 100 {
		dealer := open(t, NewDealer, Options{Identity: fmt.Append(nil, "dealer ", i)})
		must(t, dealer.Connect(router.LastEndpoint()))
		must(t, dealer.Send(ctx, []byte("hello")))
		wantRecv(t, func() (Message, error) { return router.Recv(ctx) }, fmt.Sprint("dealer ", i), "hello")
		must(t, router.Send(ctx, fmt.Append(nil, "dealer ", i), []byte("world")))
		wantRecv(t, func() (Message, error) { return dealer.Recv(ctx) }, "world")
		must(t, dealer.Close())
	}
}

// TestLibzmq_immediate: by default half of the messages wait for a peer that never
// connects; with the option all go to the connected peer, and without one Send waits.
func TestLibzmq_immediate(t *testing.T) {
	t.Parallel()
	for _, immediate := range []bool{false, true} {
		t.Run(fmt.Sprint(immediate), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			seen := newEvents()
			push := open(t, NewPush, quick(Options{Immediate: immediate, Linger: LingerNone, Monitor: seen.Tell}))
			pull := bind(t, NewPull, Options{})
			must(t, push.Connect(freePort(t)))
			must(t, push.Connect(pull.LastEndpoint()))
			seen.Await(t, EventHandshakeSucceeded)
			for i := range 10 {
				must(t, push.Send(ctx, fmt.Append(nil, i)))
			}
			got := 5
			if immediate {
				got = 10
			}
			for range got {
				_, err := pull.Recv(ctx)
				must(t, err)
			}
			must(t, pull.Close())
			seen.Await(t, EventDisconnected)
			if err := push.TrySend([]byte("x")); immediate != errors.Is(err, ErrWouldBlock) {
				t.Errorf("while nobody is there: %v", err)
			}
		})
	}
}

// TestLibzmq_connect_rid_router: ROUTER and ROUTER, one of which has named the
// other, over a network: the one that connects names the bound peer and sends
// first, and the bound one answers by the identity that it was told, or by a
// generated one.
func TestLibzmq_connect_rid_router(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		for _, endpoint := range []string{anyPort, "inproc://rid"} {
			t.Run(fmt.Sprint(named, " ", endpoint), func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				names := new(Inproc)
				bound := open(t, NewRouter, Options{Identity: []byte("X"), Mandatory: true, Inproc: names})
				must(t, bound.Bind(ctx, endpoint))
				o := Options{Mandatory: true, Inproc: names}
				if named {
					o.Identity = []byte("Y")
				}
				connecting := open(t, NewRouter, o)
				must(t, connecting.ConnectAs(bound.LastEndpoint(), []byte("X")))
				must(t, connecting.Send(ctx, []byte("X"), []byte("hello")))
				m, err := bound.Recv(ctx)
				must(t, err)
				if string(m[1]) != "hello" || named && string(m[0]) != "Y" || !named && (len(m[0]) != 5 || m[0][0] != 0) {
					t.Errorf("%q", m)
				}
				must(t, bound.Send(ctx, m[0], []byte("world")))
				wantRecv(t, func() (Message, error) { return connecting.Recv(ctx) }, "X", "world")
				// A second endpoint cannot have the name, and the first keeps it.
				if err := connecting.ConnectAs(bound.LastEndpoint(), []byte("X")); !errors.Is(err, ErrIdentityInUse) {
					t.Errorf("%v", err)
				}
				must(t, connecting.Send(ctx, []byte("X"), []byte("again")))
				wantRecv(t, func() (Message, error) { return bound.Recv(ctx) }, string(m[0]), "again")
			})
		}
	}
}
