package libzmq

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/sockets"
)

// These tests are about endpoints and connections: the requirements of libzmq's tests of
// its sockets' lives, and of its tests of peers' knowledge of each other.

// TestLibzmq_stream_timeout: each side disconnects a silent peer; by default after 30
// seconds.
func TestLibzmq_stream_timeout(t *testing.T) {
	t.Parallel()
	impatient := func(seen *events) *sockets.Dealer {
		t.Helper()
		dealer := open(t, sockets.NewDealer, sockets.Options{Linger: sockets.LingerNone, Monitor: seen.Tell})
		if got := dealer.Options().HandshakeTimeout; got != 30*time.Second {
			t.Errorf("the default is %v", got)
		}
		const short = 50 * time.Millisecond
		must(t, dealer.SetOptions(func(o *sockets.Options) { o.HandshakeTimeout = short }))
		if got := dealer.Options().HandshakeTimeout; got != short {
			t.Errorf("%v after it was set to %v", got, short)
		}
		return dealer
	}
	seen := newEvents()
	dealer := impatient(seen)
	must(t, dealer.Bind(testContext(t), freePort(t)))
	dialRaw(t, dealer.LastEndpoint()).Ended()
	seen.Await(t, sockets.EventAccepted)
	if e := seen.Await(t, sockets.EventHandshakeFailed); !errors.Is(e.Err, sockets.ErrHandshakeTimeout) {
		t.Errorf("%+v", e)
	}
	seen = newEvents()
	dealer = impatient(seen)
	endpoint, accept := listenRaw(t)
	must(t, dealer.Connect(endpoint))
	accept().Ended()
	seen.Await(t, sockets.EventConnected)
	if e := seen.Await(t, sockets.EventHandshakeFailed); !errors.Is(e.Err, sockets.ErrHandshakeTimeout) {
		t.Errorf("%+v", e)
	}
	seen.Await(t, sockets.EventConnectRetried)
}

// TestLibzmq_metadata: the receiver of a message can read the properties of its sender.
func TestLibzmq_metadata(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := mechanisms()["PLAIN"]
	p.server.Authenticate = sockets.AllowUsers(map[string]string{"user": "secret"})
	rep := bind(t, sockets.NewRep, sockets.Options{Security: p.server})
	req := open(t, sockets.NewReq, sockets.Options{Security: p.client})
	must(t, req.Connect(rep.LastEndpoint()))
	must(t, req.Send(ctx, []byte("who am I")))
	_, peer, err := rep.RecvFrom(ctx)
	must(t, err)
	host, _, err := net.SplitHostPort(peer.RemoteAddr())
	if err != nil || host != "127.0.0.1" {
		t.Errorf("address %q", peer.RemoteAddr())
	}
	for name, want := range map[string]string{"Socket-Type": "REQ", "User-Id": "user", "Nothing": ""} {
		if got, ok := peer.Property(name); got != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestLibzmq_app_meta: properties of the application reach the peer, and only
// such as begin with X-.
func TestLibzmq_app_meta(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, sockets.NewRep, sockets.Options{})
	req := open(t, sockets.NewReq, sockets.Options{Metadata: map[string]string{"X-key": "value", "X-empty": ""}})
	must(t, req.Connect(rep.LastEndpoint()))
	must(t, req.Send(ctx, []byte("hello")))
	_, peer, err := rep.RecvFrom(ctx)
	must(t, err)
	for name, want := range map[string]struct {
		value string
		ok    bool
	}{"X-key": {"value", true}, "X-empty": {"", true}, "X-none": {"", false}} {
		if v, ok := peer.Property(name); v != want.value || ok != want.ok {
			t.Errorf("%s: %q, %v", name, v, ok)
		}
	}
	for _, name := range []string{"key", "X-", "Socket-Type", "X-a b", "X-" + strings.Repeat("x", 254), ""} {
		var fault *sockets.OptionError
		if _, err := sockets.NewReq(sockets.Options{Metadata: map[string]string{name: "value"}}); !errors.As(err, &fault) || fault.Field != "Metadata" {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestLibzmq_reconnect_ivl: with a negative interval a socket does not reconnect until
// Connect is called again.
func TestLibzmq_reconnect_ivl(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	pull := open(t, sockets.NewPull, sockets.Options{})
	endpoint := freePort(t)
	must(t, pull.Bind(ctx, endpoint))
	push := open(t, sockets.NewPush, sockets.Options{ReconnectInterval: -1, Monitor: seen.Tell})
	must(t, push.Connect(endpoint))
	must(t, push.Send(ctx, []byte("first")))
	if m, err := pull.Recv(ctx); err != nil || string(m[0]) != "first" {
		t.Errorf("%q %v", m, err)
	}
	must(t, pull.Unbind(endpoint))
	seen.Await(t, sockets.EventDisconnected)
	eventually(t, "it is forgotten", func() bool { return len(push.Peers()) == 0 })
	must(t, pull.Bind(ctx, endpoint))
	if err := push.TrySend([]byte("nobody")); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("after the end: %v", err)
	}
	must(t, push.Connect(endpoint))
	must(t, push.Send(ctx, []byte("second")))
	if m, err := pull.Recv(ctx); err != nil || string(m[0]) != "second" {
		t.Errorf("%q %v", m, err)
	}
	if n := seen.Count(sockets.EventConnectRetried); n != 0 {
		t.Errorf("%d retries", n)
	}
}

// TestLibzmq_bind_after_connect_tcp: messages sent before the peer is bound are
// delivered later.
func TestLibzmq_bind_after_connect_tcp(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint := freePort(t)
	dealer := open(t, sockets.NewDealer, sockets.Options{ReconnectInterval: 5 * time.Millisecond})
	must(t, dealer.Connect(endpoint))
	const n = 10
	for i := range n {
		must(t, dealer.Send(ctx, fmt.Append(nil, i)))
	}
	router := open(t, sockets.NewRouter, sockets.Options{})
	must(t, router.Bind(ctx, endpoint))
	for i := range n {
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[1]) != fmt.Sprint(i) {
			t.Errorf("%q, want %d", m[1], i)
		}
	}
}

// TestLibzmq_last_endpoint: it is the endpoint that was bound, with the chosen port, or
// that was connected.
func TestLibzmq_last_endpoint(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := open(t, sockets.NewRouter, sockets.Options{})
	if e := s.LastEndpoint(); e != "" {
		t.Errorf("%q in the beginning", e)
	}
	must(t, s.Bind(ctx, anyPort))
	first := s.LastEndpoint()
	must(t, s.Bind(ctx, anyPort))
	second := s.LastEndpoint()
	for _, e := range []string{first, second} {
		if !strings.HasPrefix(e, "tcp://127.0.0.1:") || strings.HasSuffix(e, ":0") || strings.HasSuffix(e, "*") {
			t.Errorf("bound as %q", e)
		}
	}
	if first == second {
		t.Errorf("both are %q", first)
	}
	must(t, s.Connect(first))
	if e := s.LastEndpoint(); e != first {
		t.Errorf("connected as %q, not %q", e, first)
	}
}

// TestLibzmq_unbind_wildcard: Unbind takes the actual endpoint, not the wildcard.
func TestLibzmq_unbind_wildcard(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, c := range []struct {
		wildcard string
		o        sockets.Options
	}{{"tcp://*:*", sockets.Options{}}, {anyPort, sockets.Options{}}} {
		s := open(t, sockets.NewRouter, c.o)
		must(t, s.Bind(ctx, c.wildcard))
		if err := s.Unbind(c.wildcard); !errors.Is(err, sockets.ErrNotBound) {
			t.Errorf("Unbind(%q): %v", c.wildcard, err)
		}
		must(t, s.Unbind(s.LastEndpoint()))
	}
}

// TestLibzmq_shutdown_stress: many sockets connect to one, and all are closed
// while they do.
func TestLibzmq_shutdown_stress(t *testing.T) {
	t.Parallel()
	for range 5 {
		pub := bind(t, sockets.NewPub, sockets.Options{Linger: sockets.LingerNone})
		var wg sync.WaitGroup
		for range 30 {
			sub := open(t, sockets.NewSub, sockets.Options{})
			wg.Go(func() {
				if err := errors.Join(sub.Connect(pub.LastEndpoint()), sub.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() { pub.Close() })
		wg.Wait()
	}
}
