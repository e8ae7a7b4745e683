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
			o.Monitor = server.Tell
			bound := open(t, NewDealer, o)
			must(t, bound.Bind(ctx, endpoint))
			o.Monitor = client.Tell
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
			far.Await(t, EventDisconnected)
			if n := silent.Count(EventDisconnected) + silent.Count(EventHandshakeFailed); n != 0 {
				t.Errorf("%s, %s: its monitor was told %v", endpoint, closes, silent.Kinds())
			}
		}
	}
}

// TestMonitorIsNotToldOfCloseInHandshake: neither does it tell of handshakes that it ends.
func TestMonitorIsNotToldOfCloseInHandshake(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	dialRaw(t, router.LastEndpoint())
	seen.Await(t, EventAccepted)
	endpoint, accept := listenRaw(t)
	must(t, router.Connect(endpoint))
	accept()
	seen.Await(t, EventConnected)
	must(t, router.Close())
	if n := seen.Count(EventHandshakeFailed); n != 0 {
		t.Errorf("told %v", seen.Kinds())
	}
}

// TestMonitorIsToldOfOtherEnds: ends that are not by Close are told as ever, also those
// by Disconnect and Unbind, and those while Close waits.
func TestMonitorIsToldOfOtherEnds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server, client := newEvents(), newEvents()
	router := bind(t, NewRouter, Options{Monitor: server.Tell})
	dealer := open(t, NewDealer, Options{Monitor: client.Tell})
	must(t, dealer.Connect(router.LastEndpoint()))
	server.Await(t, EventHandshakeSucceeded)
	client.Await(t, EventHandshakeSucceeded)
	must(t, dealer.Disconnect(router.LastEndpoint()))
	client.Await(t, EventDisconnected)
	server.Await(t, EventDisconnected)
	must(t, dealer.Connect(router.LastEndpoint()))
	server.Await(t, EventHandshakeSucceeded)
	client.Await(t, EventHandshakeSucceeded)
	must(t, router.Unbind(router.LastEndpoint()))
	server.Await(t, EventDisconnected)

	seen := newEvents()
	endpoint, accept := listenRaw(t)
	push, err := NewPush(Options{Monitor: seen.Tell, Linger: time.Hour})
	must(t, err)
	must(t, push.Connect(endpoint))
	r := accept().Greet("PULL", nil)
	must(t, push.Send(ctx, plug))
	must(t, push.Send(ctx, []byte("x")))
	closed := closes(push)
	<-push.core.Closing()
	r.Conn.Close() // with unread bytes, so it is reset
	seen.Await(t, EventDisconnected)
	r = accept().Greet("PULL", nil)
	m := r.Message()
	if len(m[0]) == len(plug) { // none of it was written before the connection broke
		m = r.Message()
	}
	if string(m[0]) != "x" {
		t.Errorf("%.10q came", m)
	}
	ends(t, "Close", closed)
}
