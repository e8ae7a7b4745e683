package sockets

import (
	"testing"
	"time"
)

// TestMonitorIsNotToldOfClose: a socket's own Close tells its monitor of no connection
// that has ended or failed, and the peer's monitor learns of it.
func TestMonitorIsNotToldOfClose(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{anyPort, "inproc://a"} {
		for _, closes := range []string{"who binds", "who connects", "who has sent"} {
			ctx := testContext(t)
			o := inprocOptions()
			server, client := newEvents(), newEvents()
			o.Monitor = server.tell
			bound := open(t, NewDealer, o)
			must(t, bound.Bind(ctx, endpoint))
			o.Monitor = client.tell
			connected := open(t, NewDealer, o)
			must(t, connected.Connect(bound.LastEndpoint()))
			says(t, connected, "x")
			wants(t, bound, "x")
			silent, far := server, client
			switch closes {
			case "who binds":
				must(t, bound.Close())
			case "who connects":
				silent, far = client, server
				must(t, connected.Close())
			default: // it waits for the peer to end the connection
				silent, far = client, server
				says(t, connected, "x")
				must(t, connected.Close())
			}
			far.await(t, EventDisconnected)
			if n := silent.count(EventDisconnected) + silent.count(EventHandshakeFailed); n != 0 {
				t.Errorf("%s, %s: its monitor was told %v", endpoint, closes, silent.told())
			}
		}
	}
}

// TestMonitorIsNotToldOfCloseInHandshake: neither does it tell of handshakes that it ends.
func TestMonitorIsNotToldOfCloseInHandshake(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.tell})
	dialRaw(t, router.LastEndpoint())
	seen.await(t, EventAccepted)
	endpoint, accept := listenRaw(t)
	must(t, router.Connect(endpoint))
	accept()
	seen.await(t, EventConnected)
	must(t, router.Close())
	if n := seen.count(EventHandshakeFailed); n != 0 {
		t.Errorf("told %v", seen.told())
	}
}

// TestMonitorIsToldOfOtherEnds: ends that are not by Close are told as ever, also those
// by Disconnect and Unbind, and those while Close waits.
func TestMonitorIsToldOfOtherEnds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server, client := newEvents(), newEvents()
	router := bind(t, NewRouter, Options{Monitor: server.tell})
	dealer := open(t, NewDealer, Options{Monitor: client.tell})
	must(t, dealer.Connect(router.LastEndpoint()))
	server.await(t, EventHandshakeSucceeded)
	client.await(t, EventHandshakeSucceeded)
	must(t, dealer.Disconnect(router.LastEndpoint()))
	client.await(t, EventDisconnected)
	server.await(t, EventDisconnected)
	must(t, dealer.Connect(router.LastEndpoint()))
	server.await(t, EventHandshakeSucceeded)
	client.await(t, EventHandshakeSucceeded)
	must(t, router.Unbind(router.LastEndpoint()))
	server.await(t, EventDisconnected)

	seen := newEvents()
	endpoint, accept := listenRaw(t)
	push, err := NewPush(Options{Monitor: seen.tell, Linger: time.Hour})
	must(t, err)
	must(t, push.Connect(endpoint))
	r := accept().greet("PULL", nil)
	must(t, push.Send(ctx, plug))
	must(t, push.Send(ctx, []byte("x")))
	closed := closes(push)
	<-push.core.Closing()
	r.conn.Close() // with unread bytes, so it is reset
	seen.await(t, EventDisconnected)
	r = accept().greet("PULL", nil)
	m := r.message()
	if len(m[0]) == len(plug) { // none of it was written before the connection broke
		m = r.message()
	}
	if string(m[0]) != "x" {
		t.Errorf("%.10q came", m)
	}
	ends(t, "Close", closed)
}
