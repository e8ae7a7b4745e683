package sockets

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// TestMonitor follows a connection from both sides, from its beginning to its
// end.
func TestMonitor(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server, client := newEvents(), newEvents()
	router := open(t, NewRouter, Options{Monitor: server.Tell, Linger: LingerNone})
	endpoint := freePort(t) // the next connection is to be refused
	must(t, router.Bind(ctx, endpoint))
	dealer := open(t, NewDealer, quick(Options{Identity: []byte("me"), Monitor: client.Tell, Linger: LingerNone}))
	must(t, dealer.Connect(endpoint))

	e := server.Await(t, EventHandshakeSucceeded)
	if e.Endpoint != endpoint || e.Remote == "" || e.Peer == nil || string(e.Peer.Identity()) != "me" || e.Err != nil {
		t.Errorf("server: %+v", e)
	}
	if s := router.Peers()[0]; s.Endpoint != endpoint || s.Remote != e.Remote || string(s.Identity) != "me" || !s.Connected {
		t.Errorf("Peers: %+v", s)
	}
	c := client.Await(t, EventHandshakeSucceeded)
	if c.Endpoint != endpoint || "tcp://"+c.Remote != endpoint || c.Peer.SocketType() != "ROUTER" {
		t.Errorf("client: %+v", c)
	}
	must(t, router.Close())
	if d := client.Await(t, EventDisconnected); d.Peer != c.Peer || !errors.Is(d.Err, io.EOF) {
		t.Errorf("client: %+v", d)
	}
	client.Await(t, EventConnectRetried)
	client.Await(t, EventConnectFailed)
	must(t, dealer.Close())

	if got := fmt.Sprint(client.Kinds()[:5]); got != "[connect delayed connected handshake succeeded disconnected connect retried]" {
		t.Errorf("client was told of %v", got)
	}
	kinds := server.Kinds()
	if got := fmt.Sprint(kinds[:3]); got != "[listening accepted handshake succeeded]" {
		t.Errorf("server was told of %v", got)
	}
	if server.Count(EventListenerClosed) != 1 || len(kinds) != 5 || kinds[4] != EventMonitorStopped {
		t.Errorf("server was told of %v", kinds)
	}
}

// TestMonitorRefusal: both sides learn why a handshake failed.
func TestMonitorRefusal(t *testing.T) {
	t.Parallel()
	server, client := newEvents(), newEvents()
	pub := bind(t, NewPub, Options{Monitor: server.Tell})
	dealer := open(t, NewDealer, Options{Monitor: client.Tell})
	must(t, dealer.Connect(pub.LastEndpoint()))
	for _, e := range []Event{server.Await(t, EventHandshakeFailed), client.Await(t, EventHandshakeFailed)} {
		var typed *PeerError
		if !errors.As(e.Err, &typed) || typed.Remote != e.Remote || typed.Error() == "" || e.Peer != nil {
			t.Errorf("%+v", e)
		}
	}
}

func TestEventKindString(t *testing.T) {
	t.Parallel()
	for k := EventListening; k <= EventMonitorStopped; k++ {
		if s := k.String(); s == "" || s[0] == 'E' {
			t.Errorf("kind %d is %q", k, s)
		}
	}
	if s := EventKind(99).String(); s != "EventKind(99)" {
		t.Errorf("%q", s)
	}
}

// TestPeers: a reading is sorted, and has the counts.
func TestPeers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := open(t, NewRouter, Options{})
	must(t, router.Bind(ctx, anyPort))
	must(t, router.Bind(ctx, anyPort))
	endpoint := router.LastEndpoint()
	must(t, router.Connect(freePort(t)))
	r := dialRaw(t, endpoint).Greet("DEALER", []byte("a"))
	dialRaw(t, endpoint).Greet("DEALER", []byte("b")).Sync()
	r.Send(wire("1", "23"), wire("4"))
	r.Sync()
	var mine PeerStats
	eventually(t, "both messages are pending", func() bool {
		peers := router.Peers()
		for i, p := range peers {
			if i > 0 && (peers[i-1].Endpoint > p.Endpoint || peers[i-1].Endpoint == p.Endpoint && peers[i-1].Remote > p.Remote) {
				t.Fatalf("not sorted: %+v", peers)
			}
			if string(p.Identity) == "a" {
				mine = p
			}
		}
		return len(peers) == 3 && mine.PendingMessages == 2
	})
	if mine.MessagesIn != 2 || mine.BytesIn != 3+4+3 || mine.Remote != r.Conn.LocalAddr().String() {
		t.Errorf("%+v", mine)
	}
	must(t, router.Send(ctx, []byte("a"), []byte("answer")))
	r.Message()
	eventually(t, "it is counted", func() bool {
		for _, p := range router.Peers() {
			if string(p.Identity) == "a" {
				return p.MessagesOut == 1 && p.BytesOut == 8
			}
		}
		return false
	})
}
