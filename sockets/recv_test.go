package sockets

import (
	"context"
	"errors"
	"slices"
	"testing"

	"clustermap/internal/sockettest"
	"clustermap/zmtp"
)

// TestRecvFrom: every type that receives returns the sender and its properties.
func TestRecvFrom(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	type receiver interface {
		Bind(context.Context, string) error
		LastEndpoint() string
		RecvFrom(context.Context) (Message, *Peer, error)
		Recv(context.Context) (Message, error)
		Close() error
	}
	sub := open(t, NewSub, Options{})
	must(t, sub.Subscribe(""))
	xsub := open(t, NewXSub, Options{})
	must(t, xsub.Send(ctx, []byte("\x01")))
	for _, c := range []struct {
		socket receiver
		peer   string
		says   []byte
		want   []string
	}{
		{open(t, NewDealer, Options{}), "REP", wire("", "m"), []string{"", "m"}},
		{open(t, NewRouter, Options{}), "REQ", wire("", "m"), []string{"me", "", "m"}},
		{open(t, NewPull, Options{}), "PUSH", wire("m"), []string{"m"}},
		{open(t, NewPair, Options{}), "PAIR", wire("m"), []string{"m"}},
		{open(t, NewRep, Options{}), "REQ", wire("", "m"), []string{"m"}},
		{open(t, NewXPub, Options{}), "SUB", zmtp.AppendSubscribe(nil, []byte("A")), []string{"\x01A"}},
		{sub, "PUB", wire("m"), []string{"m"}},
		{xsub, "XPUB", wire("m"), []string{"m"}},
	} {
		must(t, c.socket.Bind(ctx, anyPort))
		r := dialRaw(t, c.socket.LastEndpoint())
		properties := zmtp.AppendProperty(nil, "Socket-Type", []byte(c.peer))
		properties = zmtp.AppendProperty(properties, "Identity", []byte("me"))
		properties = zmtp.AppendProperty(properties, "X-Color", []byte("blue"))
		// A peer may announce any properties.
		properties = zmtp.AppendProperty(properties, "User-Id", []byte("root"))
		properties = zmtp.AppendProperty(properties, "Peer-Address", []byte("10.0.0.1"))
		r.Send(greeting(1), zmtp.AppendCommand(nil, "READY", properties), c.says)
		m, peer, err := c.socket.RecvFrom(ctx)
		must(t, err)
		if got := texts(m); len(got) != len(c.want) || got[len(got)-1] != c.want[len(got)-1] || got[0] != c.want[0] {
			t.Errorf("%s: %q, want %q", c.peer, got, c.want)
		}
		identity := ""
		if c.peer == "REQ" {
			identity = "me"
		}
		for name, want := range map[string]string{
			"Peer-Address": "127.0.0.1", "peer-address": "127.0.0.1", "User-Id": "", "Socket-Type": c.peer,
			"Identity": identity, "Routing-Id": identity, "x-color": "blue", "X-None": "",
		} {
			// Properties that the peer does not have are absent. A peer without an
			// identity may announce an empty one.
			got, ok := peer.Property(name)
			if got != want || ok != (want != "") && name != "Identity" && name != "Routing-Id" {
				t.Errorf("%s: %s is %q, %v, want %q", c.peer, name, got, ok, want)
			}
		}
		if s := peer.Stats(); !s.Connected || s.PendingMessages != 0 || s.PendingBytes != 0 || s.Remote != r.Conn.LocalAddr().String() {
			t.Errorf("%s: %+v", c.peer, s)
		}
		r.Conn.Close()
		eventually(t, "its end", func() bool { return !peer.Stats().Connected })
		// The counts stay with a peer that has gone.
		if s := peer.Stats(); c.peer != "SUB" && s.MessagesIn != 1 || s.Endpoint != c.socket.LastEndpoint() {
			t.Errorf("%s: %+v", c.peer, s)
		}
		if color, _ := peer.Property("X-Color"); color != "blue" {
			t.Error("forgotten")
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		for {
			_, peer, err := c.socket.RecvFrom(over)
			if err == nil {
				continue // an XPUB's notice
			}
			if peer != nil || !errors.Is(err, context.Canceled) && !errors.Is(err, ErrState) {
				t.Errorf("%s: %v %v", c.peer, peer, err)
			}
			break
		}
		must(t, c.socket.Close())
	}
}

// TestRecvFromReq: a reply's sender.
func TestRecvFromReq(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := bind(t, NewReq, Options{})
	if _, peer, err := req.RecvFrom(ctx); peer != nil || !errors.Is(err, ErrState) {
		t.Errorf("%v %v", peer, err)
	}
	rep := open(t, NewRep, Options{Metadata: map[string]string{"X-Name": "it"}})
	must(t, rep.Connect(req.LastEndpoint()))
	must(t, req.Send(ctx, []byte("question")))
	m, asks, err := rep.RecvFrom(ctx)
	must(t, err)
	must(t, rep.Send(ctx, m...))
	m, replies, err := req.RecvFrom(ctx)
	must(t, err)
	name, _ := replies.Property("X-Name")
	if string(m[0]) != "question" || asks.SocketType() != "REQ" || name != "it" {
		t.Errorf("%q %v %v", m, asks.SocketType(), name)
	}
}

// TestPeerPropertyOld: the properties of peers without metadata.
func TestPeerPropertyOld(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, c := range []struct {
		version sockettest.Version
		want    string
	}{{sockettest.ZMTP10, ""}, {sockettest.ZMTP20, "DEALER"}} {
		router := open(t, NewRouter, Options{})
		r := sockettest.Link{Version: c.version, Binds: true}.Join(t, router, zmtp.TypeRouter, "", zmtp.TypeDealer, "old")
		r.Send([]byte(c.version.Message("m")))
		_, peer, err := router.RecvFrom(ctx)
		must(t, err)
		kind, known := peer.Property("Socket-Type")
		id, _ := peer.Property("Routing-Id")
		address, _ := peer.Property("Peer-Address")
		if kind != c.want || known != (c.want != "") || id != "old" || address != "127.0.0.1" {
			t.Errorf("%s: %q %v, %q, %q", c.version, kind, known, id, address)
		}
	}
}

// TestRecvInto: a message replaces any other one, in its memory, and an error none.
func TestRecvInto(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dealer := bind(t, NewDealer, Options{})
	other := open(t, NewDealer, Options{})
	must(t, other.Connect(dealer.LastEndpoint()))
	var m Message
	for _, frames := range [][]string{
		{"a", "b"}, {"longer than that"}, {"", "x", ""}, {string(make([]byte, 50_000)), "end"}, {"1", "2", "3", "4"}, {""}, {"y"},
	} {
		var sent [][]byte
		for _, f := range frames {
			sent = append(sent, []byte(f))
		}
		must(t, other.Send(ctx, sent...))
		must(t, dealer.RecvInto(ctx, &m))
		if !slices.Equal(sockettest.Texts(m), frames) {
			t.Errorf("%.100q, want %.100q", m, frames)
		}
		for _, f := range m {
			if f == nil {
				t.Error("a frame is nil")
			}
		}
	}
	first := &m[0][0]
	must(t, other.Send(ctx, []byte("z")))
	must(t, dealer.RecvInto(ctx, &m))
	if &m[0][0] != first {
		t.Error("the memory is another one")
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := dealer.RecvInto(over, &m); !errors.Is(err, context.Canceled) || len(m) != 1 || string(m[0]) != "z" {
		t.Errorf("%v, %q", err, m)
	}
	must(t, dealer.Close())
	if err := dealer.RecvInto(ctx, &m); !errors.Is(err, ErrClosed) || len(m) != 1 {
		t.Errorf("%v, %q", err, m)
	}
}
