package sockets

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"clustermap/zmtp"
)

// TestWaitPeers: it returns when so many peers can be sent to, over all transports.
func TestWaitPeers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, endpoint := range []string{anyPort, "ipc://*", "inproc://peers"} {
		router := open(t, NewRouter, Options{Mandatory: true, Inproc: &Inproc{}})
		must(t, router.Bind(ctx, endpoint))
		ended, cancel := context.WithCancel(ctx)
		cancel()
		must(t, router.WaitPeers(ended, 0))
		if err := router.WaitPeers(ended, 1); err != context.Canceled {
			t.Error(err)
		}
		done := make(chan error, 1)
		go func() { done <- router.WaitPeers(ctx, 2) }()
		var dealers []*Dealer
		for _, name := range []string{"a", "b"} {
			d := open(t, NewDealer, Options{Identity: []byte(name), Inproc: router.opts().Inproc})
			must(t, d.Connect(router.LastEndpoint()))
			must(t, d.WaitPeers(ctx, 1))
			dealers = append(dealers, d)
		}
		must(t, <-done)
		for _, name := range []string{"a", "b"} {
			must(t, router.Send(ctx, []byte(name), []byte("x")))
		}
		must(t, dealers[0].Close())
		eventually(t, "one left", func() bool { return router.WaitPeers(ended, 2) != nil })
		must(t, router.WaitPeers(ctx, 1))
		go func() { done <- router.WaitPeers(ctx, 3) }()
		must(t, router.Close())
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

// TestWaitPeersIgnored: a peer that is refused, or that waits for its identity, does not
// count until it is admitted.
func TestWaitPeersIgnored(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, endpoint := range []string{anyPort, "inproc://ignored"} {
		seen := newEvents()
		router := open(t, NewRouter, Options{Monitor: seen.Tell, Inproc: &Inproc{}})
		must(t, router.Bind(ctx, endpoint))
		first := open(t, NewDealer, Options{Identity: []byte("same"), Inproc: router.opts().Inproc})
		must(t, first.Connect(router.LastEndpoint()))
		must(t, router.WaitPeers(ctx, 1))
		second := open(t, NewDealer, Options{Identity: []byte("same"), Inproc: router.opts().Inproc})
		must(t, second.Connect(router.LastEndpoint()))
		seen.Await(t, EventPeerIgnored)
		if err := router.WaitPeers(ended, 2); err != context.Canceled {
			t.Errorf("%s: %v", endpoint, err)
		}
		must(t, first.Close())
		seen.Await(t, EventPeerAdmitted)
		must(t, router.WaitPeers(ctx, 1))
		must(t, second.Close())
		eventually(t, "nobody", func() bool { return router.WaitPeers(ended, 1) != nil })
		if n := router.core.Status().Peers; n != 0 {
			t.Errorf("%s: %d peers are left", endpoint, n)
		}
	}
}

// TestRouterLookup: it returns the peers to which messages can be sent, and whether at
// once.
func TestRouterLookup(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{Mandatory: true, SendHWM: 10})
	if _, _, err := router.Lookup([]byte("a")); !errors.Is(err, ErrUnroutable) {
		t.Error(err)
	}
	dealer := open(t, NewDealer, Options{Identity: []byte("a"), RecvHWM: 10})
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, router.WaitPeers(ctx, 1))
	peer, events, err := router.Lookup([]byte("a"))
	if err != nil || events != PollOut || string(peer.Identity()) != "a" {
		t.Errorf("%v, %v, %v", peer, events, err)
	}
	eventually(t, "it stays full", func() bool { // for the system takes some
		for err == nil {
			err = router.TrySend([]byte("a"), make([]byte, 64<<10))
		}
		var p *Peer
		if p, events, err = router.Lookup([]byte("a")); err != nil || p != peer {
			t.Fatalf("full: %v, %v", p, err)
		}
		return events == 0
	})
	must(t, dealer.Close())
	eventually(t, "the end", func() bool { _, _, err := router.Lookup([]byte("a")); return errors.Is(err, ErrUnroutable) })

	other := open(t, NewDealer, Options{})
	endpoint := freePort(t)
	must(t, router.ConnectAs(endpoint, []byte("named")))
	if peer, events, err := router.Lookup([]byte("named")); peer != nil || events != PollOut || err != nil {
		t.Errorf("not connected yet: %v, %v, %v", peer, events, err)
	}
	must(t, other.Bind(ctx, endpoint))
	eventually(t, "the connection", func() bool {
		peer, events, err := router.Lookup([]byte("named"))
		return err == nil && events == PollOut && peer != nil && peer.SocketType() == "DEALER"
	})
	must(t, router.Close())
	if _, _, err := router.Lookup([]byte("named")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestWaitPeersSaysWhy: an endpoint that cannot be reached is in the error.
func TestWaitPeersSaysWhy(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	pub := open(t, NewPub, Options{})
	must(t, pub.Bind(ctx, anyPort))
	req := open(t, NewReq, Options{})
	must(t, req.Connect(pub.LastEndpoint())) // a type that it cannot talk to
	eventually(t, "an attempt has failed", func() bool { return req.Endpoints()[0].Err != nil })
	err := req.WaitPeers(ended, 1)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, zmtp.ErrIncompatible) || !strings.Contains(err.Error(), pub.LastEndpoint()) {
		t.Error(err)
	}
}

// TestWaitsSayWhatIsMissing: a wait for subscriptions that ends with its context says how
// many subscribers there are, and on both sides why a peer was not reached.
func TestWaitsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	ended, cancel := context.WithCancel(ctx)
	cancel()

	pub := bind(t, NewPub, Options{})
	for _, topic := range []string{"price.", "other"} {
		sub := open(t, NewSub, Options{})
		must(t, sub.Subscribe(topic))
		must(t, sub.Connect(pub.LastEndpoint()))
		must(t, sub.WaitSubscribed(ctx))
	}
	err := pub.WaitSubscribers(ended, "price.", 2)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `1 of 2 connected peers have a subscription that matches "price."`) {
		t.Error(err)
	}
	if err := pub.WaitSubscribers(ended, "price", 1); !strings.Contains(err.Error(), "0 of 2") {
		t.Error(err)
	}

	refusing := freePort(t)
	lonely, sub := open(t, NewPub, Options{}), open(t, NewSub, Options{})
	for name, s := range map[string]struct {
		Socket
		wait func() error
	}{
		"Pub": {lonely, func() error { return lonely.WaitSubscribers(ended, "x", 1) }},
		"Sub": {sub, func() error { return sub.WaitSubscribed(ended) }},
	} {
		must(t, s.Connect(refusing))
		eventually(t, "an attempt has failed", func() bool { return s.Endpoints()[0].Err != nil })
		if err := s.wait(); !errors.Is(err, context.Canceled) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), refusing) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
