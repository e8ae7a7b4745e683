package sockets

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

var printVerbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"}

// A socket and a peer print their type, also while messages arrive. With the race
// detector this shows that printing reads nothing that changes.
func TestPrintSocketAndPeer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	at := router.LastEndpoint()
	dealer := open(t, NewDealer, Options{Identity: []byte("me")})
	must(t, dealer.Connect(at))
	must(t, dealer.Send(ctx, []byte("first")))
	_, peer, err := router.RecvFrom(ctx)
	must(t, err)

	const messages = 200
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for range messages {
			if err := dealer.Send(ctx, []byte("more")); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range messages {
			if _, err := router.Recv(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	for range 20 {
		for _, verb := range printVerbs {
			for _, p := range []struct {
				v    any
				want string
			}{
				{router, "sockets.Socket(ROUTER " + at + ")"},
				{dealer, "sockets.Socket(DEALER " + at + ")"},
				{peer, `sockets.Peer(DEALER ` + peer.RemoteAddr() + `, identity "me")`},
			} {
				if text := fmt.Sprintf(verb, p.v); text != p.want {
					t.Fatalf("%s prints %s, want %s", verb, text, p.want)
				}
			}
		}
	}
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("", "peer", peer)
	if !strings.Contains(out.String(), "sockets.Peer(DEALER ") {
		t.Errorf("slog prints %s", out.String())
	}
}

// Every socket type prints its name, also without an endpoint.
func TestPrintSocketTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		socket Socket
		name   string
	}{
		{open(t, NewDealer, Options{}), "DEALER"}, {open(t, NewPair, Options{}), "PAIR"}, {open(t, NewPub, Options{}), "PUB"},
		{open(t, NewPull, Options{}), "PULL"}, {open(t, NewPush, Options{}), "PUSH"}, {open(t, NewRep, Options{}), "REP"},
		{open(t, NewReq, Options{}), "REQ"}, {open(t, NewRouter, Options{}), "ROUTER"}, {open(t, NewStream, Options{}), "STREAM"},
		{open(t, NewSub, Options{}), "SUB"}, {open(t, NewXPub, Options{}), "XPUB"}, {open(t, NewXSub, Options{}), "XSUB"},
	} {
		for _, verb := range printVerbs {
			if text, want := fmt.Sprintf(verb, c.socket), "sockets.Socket("+c.name+")"; text != want {
				t.Errorf("%s prints %s, want %s", verb, text, want)
			}
		}
	}
	if text := fmt.Sprint((*Router)(nil), (*Peer)(nil)); text != "<nil> <nil>" {
		t.Errorf("nil pointers print as %s", text)
	}
}

func TestPrintPollEvents(t *testing.T) {
	t.Parallel()
	for e, want := range map[PollEvents]string{0: "none", PollIn: "in", PollOut: "out", PollIn | PollOut: "in|out", PollIn | 64: "in|PollEvents(64)"} {
		if text := fmt.Sprint(e); text != want {
			t.Errorf("%d prints as %s, want %s", e, text, want)
		}
	}
}

// %v prints a message as text. All other verbs print it like the slices it consists of.
func TestPrintMessage(t *testing.T) {
	t.Parallel()
	m := Message{[]byte("hello"), nil, {0, 255}}
	const text = `["hello" "" "\x00\xff"]`
	for _, verb := range []string{"%v", "%+v"} {
		want := text
		if verb == "%+v" {
			want = fmt.Sprintf("%+q", [][]byte(m))
		}
		if got := fmt.Sprintf(verb, m); got != want {
			t.Errorf("%s prints %s, want %s", verb, got, want)
		}
	}
	if got := m.String(); got != text {
		t.Errorf("String returns %s, want %s", got, text)
	}
	for _, verb := range []string{"%s", "%q", "%x", "%X", "% x", "%d"} {
		if got, want := fmt.Sprintf(verb, m), fmt.Sprintf(verb, [][]byte(m)); got != want {
			t.Errorf("%s prints %s, want %s", verb, got, want)
		}
	}
	if got := fmt.Sprint(Message(nil)); got != "[]" {
		t.Errorf("an empty message prints as %s", got)
	}
}
