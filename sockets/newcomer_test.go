package sockets

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestIdentityIsFreed: a peer that comes back while its last connection, which is
// dead, still has its identity is let in when that one has gone, and messages that it
// sent in the meantime arrive; so is the next one after it.
func TestIdentityIsFreed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{Mandatory: true, Notify: NotifyConnect | NotifyDisconnect, Monitor: seen.Tell})
	recv := func() (Message, error) { return router.Recv(ctx) }
	dead := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("me"))
	wantRecv(t, recv, "me", "")
	var back []*Dealer
	for i := range 2 {
		d := open(t, NewDealer, Options{Identity: []byte("me")})
		must(t, d.Connect(router.LastEndpoint()))
		must(t, d.Send(ctx, fmt.Append(nil, "hello", i)))
		seen.Await(t, EventPeerIgnored)
		back = append(back, d)
	}
	dead.Conn.Close()
	for i, d := range back {
		// The end of the one before it, its own beginning and then its message. The
		// connections have queues of their own, so only the order of each is fixed.
		came := map[string]int{}
		of := map[*Peer]string{}
		for range 3 {
			m, peer, err := router.RecvFrom(ctx)
			must(t, err)
			of[peer] += fmt.Sprintf("%q", m)
		}
		for _, text := range of {
			came[text]++
		}
		if end, join := `["me" ""]`, fmt.Sprintf(`["me" ""]["me" "hello%d"]`, i); len(of) != 2 || came[end] != 1 || came[join] != 1 {
			t.Errorf("%v came", came)
		}
		seen.Await(t, EventPeerAdmitted)
		must(t, router.Send(ctx, []byte("me"), []byte("answer")))
		wantRecv(t, func() (Message, error) { return d.Recv(ctx) }, "answer")
		must(t, d.Close())
	}
	wantRecv(t, recv, "me", "")
	eventually(t, "the identity is free", func() bool {
		return errors.Is(router.Send(ctx, []byte("me"), []byte("x")), ErrUnroutable)
	})
	if identities, awaited := router.routes.Status(); identities+awaited != 0 {
		t.Errorf("%d identities are left, %d are waited for", identities, awaited)
	}
}

// TestIdentityStaysInUse: a newcomer whose identity stays in use is disconnected after
// the time of a handshake, sending or not, and tries again.
func TestIdentityStaysInUse(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{HandshakeTimeout: 300 * time.Millisecond, Monitor: seen.Tell})
	var first *raw
	for first = dialRaw(t, router.LastEndpoint()); first.TryGreet("DEALER", []byte("me")) != nil || first.TrySync() != nil; {
		first = dialRaw(t, router.LastEndpoint()) // on a busy machine one of us may have been too slow
	}
	dealer := open(t, NewDealer, quick(Options{Identity: []byte("me"), Linger: LingerNone}))
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("never heard")))
	for range 2 {
		if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrIdentityInUse) {
			t.Errorf("%v", e.Err)
		}
	}
	first.Conn.Close()
	eventually(t, "it is let in", func() bool {
		_ = router.Send(ctx, []byte("me"), []byte("welcome"))
		m, err := dealer.TryRecv()
		return err == nil && string(m[0]) == "welcome"
	})
	within(t, "Close", func() { must(t, router.Close()) })
}

// TestCloseDoesNotWaitForAnIdentity: neither side's end waits for an identity.
func TestCloseDoesNotWaitForAnIdentity(t *testing.T) {
	t.Parallel()
	for _, inproc := range []bool{false, true} {
		seen := newEvents()
		o := inprocOptions()
		o.Monitor = seen.Tell
		router := open(t, NewRouter, o)
		endpoint := "inproc://a"
		if !inproc {
			endpoint = anyPort
		}
		must(t, router.Bind(testContext(t), endpoint))
		o.Monitor, o.Identity, o.Linger = nil, []byte("me"), LingerNone
		var all []*Dealer
		for range 3 {
			d := open(t, NewDealer, o)
			must(t, d.Connect(router.LastEndpoint()))
			must(t, d.Send(testContext(t), []byte("x")))
			if len(all) == 0 {
				seen.Await(t, EventHandshakeSucceeded)
			} else {
				seen.Await(t, EventPeerIgnored)
			}
			all = append(all, d)
		}
		within(t, "Close of a newcomer", func() { must(t, all[1].Close()) })
		within(t, "Close of the router", func() { must(t, router.Close()) })
	}
}

// TestNewcomerOverInproc: a newcomer from the same process is let in as well.
func TestNewcomerOverInproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	o := inprocOptions()
	o.Monitor = seen.Tell
	router := open(t, NewRouter, o)
	must(t, router.Bind(ctx, anyPort))
	must(t, router.Bind(ctx, "inproc://a"))
	recv := func() (Message, error) { return router.Recv(ctx) }
	o.Monitor, o.Identity = nil, []byte("me")
	first, second := open(t, NewDealer, o), open(t, NewDealer, o)
	must(t, first.Connect("inproc://a"))
	must(t, second.Connect("inproc://a"))
	seen.Await(t, EventPeerIgnored)
	must(t, second.Send(ctx, []byte("second")))
	must(t, first.Send(ctx, []byte("first")))
	wantRecv(t, recv, "me", "first")
	must(t, first.Close())
	seen.Await(t, EventPeerAdmitted)
	wantRecv(t, recv, "me", "second")
	must(t, router.Send(ctx, []byte("me"), []byte("answer")))
	wantRecv(t, func() (Message, error) { return second.Recv(ctx) }, "answer")
}
