package sockets

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLibzmq_bind_src_address: a connection comes from the address and port
// that it was given.
func TestLibzmq_bind_src_address(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	target := strings.TrimPrefix(router.LastEndpoint(), "tcp://")
	port := sourcePort(t)
	for source, want := range map[string]string{
		"127.0.0.1:0": "127.0.0.1", "*:*": "127.0.0.1", "localhost:*": "127.0.0.1",
		"127.0.0.1:" + port: "127.0.0.1:" + port,
	} {
		dealer := open(t, NewDealer, quick(Options{}))
		e := "tcp://" + source + ";" + target
		must(t, dealer.Connect(e))
		echo(t, ctx, dealer, router)
		if got := seen.Await(t, EventAccepted).Remote; !strings.HasPrefix(got, want) {
			t.Errorf("%s comes from %s", e, got)
		}
		must(t, dealer.Disconnect(e))
		must(t, dealer.Close())
	}
	if ifc, err := net.InterfaceByName("lo"); err == nil && ifc != nil {
		dealer := open(t, NewDealer, Options{})
		must(t, dealer.Connect("tcp://lo:*;"+target))
		echo(t, ctx, dealer, router)
	}
	told := newEvents()
	dealer := open(t, NewDealer, quick(Options{Monitor: told.Tell}))
	must(t, dealer.Connect("tcp://192.0.2.1:0;"+target)) // not an address of ours
	if e := told.Await(t, EventConnectFailed); !errors.Is(e.Err, syscall.EADDRNOTAVAIL) {
		t.Errorf("%+v", e)
	}
}

// TestIPv6: with the option the wildcard is both families, without it one.
func TestIPv6(t *testing.T) {
	t.Parallel()
	hasIPv6(t)
	ctx := testContext(t)
	router := open(t, NewRouter, Options{IPv6: true})
	must(t, router.Bind(ctx, "tcp://*:*"))
	port, ok := strings.CutPrefix(router.LastEndpoint(), "tcp://[::]:")
	if !ok {
		t.Fatalf("bound as %s", router.LastEndpoint())
	}
	for _, e := range []string{"tcp://[::1]:" + port, "tcp://127.0.0.1:" + port} {
		dealer := open(t, NewDealer, Options{})
		must(t, dealer.Connect(e))
		echo(t, ctx, dealer, router)
	}

	four := open(t, NewRouter, Options{})
	must(t, four.Bind(ctx, "tcp://*:*"))
	port, ok = strings.CutPrefix(four.LastEndpoint(), "tcp://0.0.0.0:")
	if !ok {
		t.Fatalf("bound as %s", four.LastEndpoint())
	}
	// So the port is free for IPv6.
	six := open(t, NewRouter, Options{})
	must(t, six.Bind(ctx, "tcp://[::1]:"+port))
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect("tcp://[::1]:"+port))
	echo(t, ctx, dealer, six)
}

// TestConnectTimeout: an attempt without an answer is given up in time. Here a proxy does
// not answer, since networks refuse sooner or later.
func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	silent := startProxy(t, &proxyServer{silent: true})
	seen := newEvents()
	dealer := open(t, NewDealer, quick(Options{ConnectTimeout: 10 * time.Millisecond, SOCKSProxy: silent.address, Monitor: seen.Tell}))
	must(t, dealer.Connect("tcp://127.0.0.1:1"))
	for range 3 {
		var timeout net.Error
		if e := seen.Await(t, EventConnectFailed); !errors.As(e.Err, &timeout) || !timeout.Timeout() {
			t.Errorf("%+v", e)
		}
	}
}

// TestLibzmq_reconnect_options: each stop condition ends the attempts, and the
// endpoint can be connected anew.
func TestLibzmq_reconnect_options(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	gone := func(dealer *Dealer) {
		t.Helper()
		eventually(t, "the endpoint is given up", func() bool { return len(dealer.Peers()) == 0 })
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		seen := newEvents()
		dealer := open(t, NewDealer, quick(Options{ReconnectStop: ReconnectStopOnRefused, Monitor: seen.Tell}))
		for _, e := range []string{freePort(t), "ipc://" + socketPath(t)} {
			must(t, dealer.Connect(e))
			seen.Await(t, EventConnectFailed)
			gone(dealer)
			if n := seen.Count(EventConnectRetried); n != 0 {
				t.Errorf("%d more attempts", n)
			}
			router := open(t, NewRouter, Options{})
			must(t, router.Bind(ctx, e))
			must(t, dealer.Connect(e))
			echo(t, ctx, dealer, router)
			must(t, dealer.Disconnect(e))
			gone(dealer)
		}
	})
	t.Run("handshake failed", func(t *testing.T) {
		t.Parallel()
		for _, stop := range []bool{true, false} {
			endpoint, accept := listenRaw(t)
			seen := newEvents()
			o := quick(Options{Monitor: seen.Tell})
			if stop {
				o.ReconnectStop = ReconnectStopOnHandshakeFailed
			}
			dealer := open(t, NewDealer, o)
			must(t, dealer.Connect(endpoint))
			accept().Conn.Close()
			seen.Await(t, EventHandshakeFailed)
			if stop {
				gone(dealer)
				must(t, dealer.Connect(endpoint))
			}
			r := accept()
			r.Greet("ROUTER", nil).Sync()
			r.Conn.Close() // an end after the handshake is another matter
			accept().Greet("ROUTER", nil).Sync()
		}
	})
	t.Run("after disconnect", func(t *testing.T) {
		t.Parallel()
		seen := newEvents()
		dealer := open(t, NewDealer, quick(Options{ReconnectStop: ReconnectStopAfterDisconnect, Linger: hang, Monitor: seen.Tell}))
		e := freePort(t)
		must(t, dealer.Connect(e))
		must(t, dealer.Send(ctx, []byte("for nobody")))
		seen.Await(t, EventConnectRetried)
		must(t, dealer.Disconnect(e))
		gone(dealer)
		// Messages that can be written are.
		router := bind(t, NewRouter, Options{})
		must(t, dealer.Connect(router.LastEndpoint()))
		echo(t, ctx, dealer, router)
		must(t, dealer.Send(ctx, []byte("last")))
		must(t, dealer.Disconnect(router.LastEndpoint()))
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[1]) != "last" {
			t.Errorf("%q", m)
		}
		gone(dealer)
	})
}

// TestLibzmq_term_endpoint: unbind and disconnect by the name that LastEndpoint
// tells, and not by a wildcard, on every transport.
func TestLibzmq_term_endpoint(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, e := range []string{freePort(t), "ipc://*", "inproc://a"} {
		o := inprocOptions()
		pull, push := open(t, NewPull, o), open(t, NewPush, o)
		must(t, pull.Bind(ctx, e))
		last := pull.LastEndpoint()
		must(t, push.Connect(last))
		must(t, push.Send(ctx, []byte("x")))
		_, err := pull.Recv(ctx)
		must(t, err)
		if strings.Contains(e, "*") {
			if err := pull.Unbind(e); !errors.Is(err, ErrNotBound) {
				t.Errorf("Unbind(%s): %v", e, err)
			}
		}
		must(t, push.Disconnect(last))
		if err := push.TrySend([]byte("y")); !errors.Is(err, ErrWouldBlock) {
			t.Errorf("Send after Disconnect(%s): %v", last, err)
		}
		must(t, pull.Unbind(last))
		if strings.HasPrefix(last, "ipc://") {
			continue // its directory is gone with it
		}
		again := open(t, NewPull, o)
		must(t, again.Bind(ctx, last))
	}
}

// TestLibzmq_connect_resolve: which addresses can be connected to.
func TestLibzmq_connect_resolve(t *testing.T) {
	t.Parallel()
	s := open(t, NewPub, quick(Options{}))
	for _, good := range []string{
		"tcp://localhost:1234", "tcp://127.0.0.1:1234", "tcp://[::1]:1234", "tcp://foobar123.invalid:1234",
		"tcp://lo:9999;localhost:1234", "tcp://*:0;127.0.0.1:1234", "tcp://localhost:*;127.0.0.1:1234",
	} {
		if err := s.Connect(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"tcp://localhost:invalid", "tcp://in val id:1234", "tcp://in&val&id:1234", "tcp://localhost:*",
		"tcp://*:1234", "tcp://127.0.0.1:1234/path", "tcp://eth0:99999;localhost:1234", "tcp://;localhost:1234",
		"tcp://localhost:1234;", "tcp://a:1;b:2;c:3", "invalid://localhost:1234", "localhost:1234",
	} {
		var typed *EndpointError
		if err := s.Connect(bad); !errors.As(err, &typed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
