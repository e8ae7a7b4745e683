package sockets

import (
	"slices"
	"testing"
)

// TestLibzmq_hello_msg: a new connection begins with the message, set on either side.
func TestLibzmq_hello_msg(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := quick(Options{HelloMessage: []byte("H")})
	t.Run("from the side that binds", func(t *testing.T) {
		t.Parallel()
		router := bind(t, NewRouter, o)
		for range 2 {
			dealer := dialled(t, NewDealer, Options{}, router.LastEndpoint())
			wants(t, dealer, "H")
		}
	})
	t.Run("from the side that connects", func(t *testing.T) {
		t.Parallel()
		router := bind(t, NewRouter, Options{})
		oo := o
		oo.Identity = []byte("me")
		dialled(t, NewDealer, oo, router.LastEndpoint())
		wants(t, router, "me H")
	})
	t.Run("from both", func(t *testing.T) {
		t.Parallel()
		one := bind(t, NewDealer, o)
		two := dialled(t, NewDealer, o, one.LastEndpoint())
		wants(t, one, "H")
		wants(t, two, "H")
	})
	t.Run("again", func(t *testing.T) {
		t.Parallel()
		// On each connection once, before the queued messages.
		endpoint, accept := listenRaw(t)
		dealer := dialled(t, NewDealer, quick(Options{HelloMessage: []byte("H"), Linger: LingerNone}), endpoint)
		must(t, dealer.Send(ctx, []byte("queued")))
		r := accept().Greet("ROUTER", nil)
		r.Wants("\x00\x01H\x00\x06queued")
		for range 3 {
			r.Conn.Close()
			r = accept().Greet("ROUTER", nil)
			r.Wants("\x00\x01H")
		}
	})
	t.Run("inproc", func(t *testing.T) {
		t.Parallel()
		router := open(t, NewRouter, o)
		must(t, router.Bind(ctx, "inproc://"+t.Name()))
		dealer := open(t, NewDealer, Options{HelloMessage: []byte("H2"), Identity: []byte("me")})
		must(t, dealer.Connect("inproc://"+t.Name()))
		must(t, dealer.Send(ctx, []byte("x")))
		wants(t, dealer, "H")
		wants(t, router, "me H2", "me x")
	})
}

// TestLibzmq_disconnect_msg: a ROUTER receives the message when a peer that
// connected has gone, behind all that it sent.
func TestLibzmq_disconnect_msg(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{DisconnectMessage: []byte("D"), RecvHWM: 2})
	endpoint := router.LastEndpoint()
	must(t, router.Bind(ctx, "inproc://"+t.Name()))
	for _, endpoint := range []string{endpoint, router.LastEndpoint()} {
		for range 3 {
			dealer := dialled(t, NewDealer, Options{Identity: []byte("me")}, endpoint)
			must(t, dealer.Send(ctx, []byte("H")))
			wants(t, router, "me H")
			must(t, dealer.Close())
			wants(t, router, "me D")
		}
	}
	// Though the queue is full.
	r := dialRaw(t, endpoint).Greet("DEALER", []byte("it"))
	r.Send(wire("1"), wire("2"))
	r.Sync()
	r.Conn.Close()
	eventually(t, "it is gone", func() bool { return len(router.Peers()) == 0 })
	wants(t, router, "it 1", "it 2", "it D")
	// Not for connections that the ROUTER made.
	endpoint, accept := listenRaw(t)
	seen := newEvents()
	other := dialled(t, NewRouter, quick(Options{DisconnectMessage: []byte("D"), Monitor: seen.Tell}), endpoint)
	accept().Greet("DEALER", []byte("it")).Conn.Close()
	seen.Await(t, EventDisconnected)
	r = accept().Greet("DEALER", []byte("it"))
	r.Send(wire("x"))
	wants(t, other, "it x")
}

// TestLibzmq_hiccup_msg: a DEALER receives the message when it has lost a
// connection that it made.
func TestLibzmq_hiccup_msg(t *testing.T) {
	t.Parallel()
	endpoint, accept := listenRaw(t)
	dealer := dialled(t, NewDealer, quick(Options{HiccupMessage: []byte("hiccup")}), endpoint)
	for range 3 {
		r := accept().Greet("ROUTER", nil)
		r.Send(slices.Concat(wire("W"), wire("x", "y")))
		wants(t, dealer, "W", "x y")
		r.Conn.Close()
		wants(t, dealer, "hiccup")
	}
	// Not for a connection that was never established, nor for one that came
	// in.
	accept().Conn.Close()
	r := accept().Greet("ROUTER", nil)
	r.Send(wire("W"))
	wants(t, dealer, "W")
	bound := bind(t, NewDealer, Options{HiccupMessage: []byte("hiccup")})
	seen := dialRaw(t, bound.LastEndpoint()).Greet("DEALER", nil)
	seen.Send(wire("1"))
	wants(t, bound, "1")
	seen.Conn.Close()
	eventually(t, "it is gone", func() bool { return len(bound.Peers()) == 0 })
	dialRaw(t, bound.LastEndpoint()).Greet("DEALER", nil).Send(wire("2"))
	wants(t, bound, "2")
}
