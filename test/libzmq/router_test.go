package libzmq

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/sockets"
)

// TestLibzmq_router_mandatory: an unroutable message is dropped, or refused.
func TestLibzmq_router_mandatory(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, mandatory := range []bool{false, true} {
		router := bind(t, sockets.NewRouter, sockets.Options{Mandatory: mandatory})
		for _, send := range []func() error{
			func() error { return router.Send(ctx, []byte("nobody"), []byte("x")) },
			func() error { return router.TrySend([]byte("nobody"), []byte("x")) },
		} {
			if err := send(); mandatory != errors.Is(err, sockets.ErrUnroutable) || !mandatory && err != nil {
				t.Errorf("mandatory %v: %v", mandatory, err)
			}
		}
		r := attached(t, router.LastEndpoint(), "DEALER", "X")
		must(t, router.TrySend([]byte("X"), []byte("hello")))
		if m := r.Message(); string(m[0]) != "hello" {
			t.Errorf("%q", m)
		}
		if _, err := router.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
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
	router := bind(t, sockets.NewRouter, sockets.Options{
		Mandatory: true, SendHWM: 1, SendTimeout: time.Millisecond, Linger: sockets.LingerNone, Monitor: seen.Tell, SendBuffer: 16 << 10,
	})
	dealer := open(t, sockets.NewDealer, sockets.Options{Identity: []byte("idle"), RecvHWM: 1, RecvBuffer: 16 << 10})
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("Hello")))
	wantRecv(t, func() (sockets.Message, error) { return router.Recv(ctx) }, "idle", "Hello")
	taken := 0
	var err error
	for _, send := range []func(...[]byte) error{router.TrySend, func(m ...[]byte) error { return router.Send(ctx, m...) }} {
		for err = nil; err == nil; taken++ {
			err = send([]byte("idle"), make([]byte, 64<<10))
		}
	}
	if taken -= 2; taken >= 10 || !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("%d messages are taken, then %v", taken, err)
	}
	must(t, dealer.Close())
	seen.Await(t, sockets.EventDisconnected)

	r := attached(t, router.LastEndpoint(), "DEALER", "X")
	for err = nil; err == nil; {
		err = router.TrySend([]byte("X"), plug)
	}
	if !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("TrySend to a full queue: %v", err)
	}
	for err = nil; err == nil; { // the writer may have taken one more
		err = router.Send(ctx, []byte("X"), plug)
	}
	if !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("Send to a full queue: %v", err)
	}
	r.Conn.Close()
	seen.Await(t, sockets.EventDisconnected)
	if err := router.Send(ctx, []byte("X"), plug); !errors.Is(err, sockets.ErrUnroutable) {
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
			router := bind(t, sockets.NewRouter, sockets.Options{
				Handover: handover, Mandatory: true, Notify: sockets.NotifyConnect | sockets.NotifyDisconnect, Monitor: seen.Tell,
			})
			recv := func() (sockets.Message, error) { return router.Recv(ctx) }
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
			if e := seen.Await(t, sockets.EventDisconnected); !errors.Is(e.Err, sockets.ErrHandedOver) {
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
			if err := router.Send(ctx, []byte("X"), []byte("y")); !errors.Is(err, sockets.ErrUnroutable) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLibzmq_router_notify: an empty message when a peer comes, or goes, or
// both, in order with its messages.
func TestLibzmq_router_notify(t *testing.T) {
	t.Parallel()
	for _, notify := range []sockets.Notify{0, sockets.NotifyConnect, sockets.NotifyDisconnect, sockets.NotifyConnect | sockets.NotifyDisconnect} {
		t.Run(fmt.Sprint(notify), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			router := bind(t, sockets.NewRouter, sockets.Options{Notify: notify})
			recv := func() (sockets.Message, error) { return router.Recv(ctx) }
			for _, id := range []string{"X", "Y"} {
				r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte(id))
				if notify&sockets.NotifyConnect != 0 {
					wantRecv(t, recv, id, "")
				}
				r.Send(wire("one"), wire("two", "frames"))
				r.Sync()
				r.Conn.Close()
				wantRecv(t, recv, id, "one")
				wantRecv(t, recv, id, "two", "frames")
				if notify&sockets.NotifyDisconnect != 0 {
					wantRecv(t, recv, id, "")
				}
			}
			if m, err := router.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
				t.Errorf("%q, %v", m, err)
			}
		})
	}
}

// TestLibzmq_probe_router: an empty message comes before all others, on every
// new connection.
func TestLibzmq_probe_router(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, sockets.NewRouter, sockets.Options{})
	recv := func() (sockets.Message, error) { return router.Recv(ctx) }
	dealer := open(t, sockets.NewDealer, sockets.Options{ProbeRouter: true, Identity: []byte("D")})
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("hello")))
	wantRecv(t, recv, "D", "")
	wantRecv(t, recv, "D", "hello")
	must(t, router.Send(ctx, []byte("D"), []byte("hello to you")))
	wantRecv(t, func() (sockets.Message, error) { return dealer.Recv(ctx) }, "hello to you")

	req := open(t, sockets.NewReq, sockets.Options{ProbeRouter: true, Identity: []byte("R")})
	must(t, req.Connect(router.LastEndpoint()))
	wantRecv(t, recv, "R", "")

	other := open(t, sockets.NewRouter, sockets.Options{ProbeRouter: true, Identity: []byte("O")})
	must(t, other.Connect(router.LastEndpoint()))
	wantRecv(t, recv, "O", "")

	// Accepted, and again after a reconnection.
	endpoint, accept := listenRaw(t)
	again := open(t, sockets.NewDealer, quick(sockets.Options{ProbeRouter: true}))
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

// TestLibzmq_connect_rid: a ROUTER that names its peer itself can send to it at
// once, with any identity that the peer announces.
func TestLibzmq_connect_rid(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"", "own name"} {
		t.Run(own, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			server := bind(t, sockets.NewRouter, sockets.Options{Identity: []byte(own)})
			client := open(t, sockets.NewRouter, sockets.Options{Mandatory: true, Identity: []byte("client")})
			must(t, client.ConnectAs(server.LastEndpoint(), []byte("server")))
			for i := range 3 {
				must(t, client.Send(ctx, []byte("server"), fmt.Append(nil, i)))
				wantRecv(t, func() (sockets.Message, error) { return server.Recv(ctx) }, "client", fmt.Sprint(i))
				must(t, server.Send(ctx, []byte("client"), fmt.Append(nil, i)))
				wantRecv(t, func() (sockets.Message, error) { return client.Recv(ctx) }, "server", fmt.Sprint(i))
			}
			if err := client.Send(ctx, []byte("own name"), []byte("x")); !errors.Is(err, sockets.ErrUnroutable) {
				t.Errorf("by its own name: %v", err)
			}
			if p := client.Peers()[0]; string(p.Identity) != "server" {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestLibzmq_issue_566: a ROUTER reaches a DEALER by its name, time and again.
func TestLibzmq_issue_566(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, sockets.NewRouter, sockets.Options{Mandatory: true})
	for i := range 100 {
		dealer := open(t, sockets.NewDealer, sockets.Options{Identity: fmt.Append(nil, "dealer ", i)})
		must(t, dealer.Connect(router.LastEndpoint()))
		must(t, dealer.Send(ctx, []byte("hello")))
		wantRecv(t, func() (sockets.Message, error) { return router.Recv(ctx) }, fmt.Sprint("dealer ", i), "hello")
		must(t, router.Send(ctx, fmt.Append(nil, "dealer ", i), []byte("world")))
		wantRecv(t, func() (sockets.Message, error) { return dealer.Recv(ctx) }, "world")
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
			push := open(t, sockets.NewPush, quick(sockets.Options{Immediate: immediate, Linger: sockets.LingerNone, Monitor: seen.Tell}))
			pull := bind(t, sockets.NewPull, sockets.Options{})
			must(t, push.Connect(freePort(t)))
			must(t, push.Connect(pull.LastEndpoint()))
			seen.Await(t, sockets.EventHandshakeSucceeded)
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
			seen.Await(t, sockets.EventDisconnected)
			if err := push.TrySend([]byte("x")); immediate != errors.Is(err, sockets.ErrWouldBlock) {
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
				names := new(sockets.Inproc)
				bound := open(t, sockets.NewRouter, sockets.Options{Identity: []byte("X"), Mandatory: true, Inproc: names})
				must(t, bound.Bind(ctx, endpoint))
				o := sockets.Options{Mandatory: true, Inproc: names}
				if named {
					o.Identity = []byte("Y")
				}
				connecting := open(t, sockets.NewRouter, o)
				must(t, connecting.ConnectAs(bound.LastEndpoint(), []byte("X")))
				must(t, connecting.Send(ctx, []byte("X"), []byte("hello")))
				m, err := bound.Recv(ctx)
				must(t, err)
				if string(m[1]) != "hello" || named && string(m[0]) != "Y" || !named && (len(m[0]) != 5 || m[0][0] != 0) {
					t.Errorf("%q", m)
				}
				must(t, bound.Send(ctx, m[0], []byte("world")))
				wantRecv(t, func() (sockets.Message, error) { return connecting.Recv(ctx) }, "X", "world")
				// A second endpoint cannot have the name, and the first keeps it.
				if err := connecting.ConnectAs(bound.LastEndpoint(), []byte("X")); !errors.Is(err, sockets.ErrIdentityInUse) {
					t.Errorf("%v", err)
				}
				must(t, connecting.Send(ctx, []byte("X"), []byte("again")))
				wantRecv(t, func() (sockets.Message, error) { return bound.Recv(ctx) }, string(m[0]), "again")
			})
		}
	}
}
