package sockets

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/zmtp"
)

// quick returns options with which a socket reconnects quickly.
func quick(o Options) Options {
	o.ReconnectInterval = time.Millisecond
	return o
}

// TestConnectBeforeBind: a socket tries to connect, with back-off, until the other
// side is bound.
func TestConnectBeforeBind(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	dealer := open(t, NewDealer, Options{ReconnectInterval: time.Millisecond, ReconnectIntervalMax: 4 * time.Millisecond, Monitor: seen.Tell})
	endpoint := freePort(t)
	must(t, dealer.Connect(endpoint))
	if dealer.LastEndpoint() != endpoint {
		t.Errorf("LastEndpoint %q", dealer.LastEndpoint())
	}
	for _, want := range []time.Duration{1, 2, 4, 4} {
		if e := seen.Await(t, EventConnectFailed); !errors.Is(e.Err, syscall.ECONNREFUSED) || e.Endpoint != endpoint {
			t.Errorf("%+v", e)
		}
		if e := seen.Await(t, EventConnectRetried); e.Retry != want*time.Millisecond {
			t.Errorf("waits %v, want %v ms", e.Retry, want)
		}
	}
	must(t, dealer.Send(ctx, []byte("early"))) // queued meanwhile
	router := open(t, NewRouter, Options{})
	must(t, router.Bind(ctx, endpoint))
	m, err := router.Recv(ctx)
	must(t, err)
	if string(m[1]) != "early" {
		t.Errorf("%q", m)
	}
}

// TestConnectMany: a socket has many endpoints, bound and connected.
func TestConnectMany(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	sub := open(t, NewSub, Options{})
	must(t, sub.Subscribe(""))
	must(t, sub.Bind(ctx, anyPort))
	ours := sub.LastEndpoint()
	var pubs []*Pub
	for i := range 6 {
		pub := open(t, NewPub, Options{})
		if i%2 == 0 {
			must(t, pub.Connect(ours))
		} else {
			must(t, pub.Bind(ctx, anyPort))
			must(t, sub.Connect(pub.LastEndpoint()))
		}
		pubs = append(pubs, pub)
	}
	for i, pub := range pubs {
		must(t, pub.WaitSubscribers(ctx, "", 1))
		must(t, pub.Send(ctx, fmt.Append(nil, i)))
	}
	seen := map[string]bool{}
	for range pubs {
		m, err := sub.Recv(ctx)
		must(t, err)
		seen[string(m[0])] = true
	}
	if len(seen) != len(pubs) {
		t.Errorf("messages of %v", seen)
	}
}

// TestConnectTwice: the same endpoint is connected once, and can be connected
// again after Disconnect.
func TestConnectTwice(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	dealer := open(t, NewDealer, Options{})
	for range 3 {
		must(t, dealer.Connect(router.LastEndpoint()))
	}
	must(t, dealer.Send(ctx, []byte("x")))
	_, err := router.Recv(ctx)
	must(t, err)
	if n := len(dealer.Peers()); n != 1 {
		t.Fatalf("%d connections", n)
	}
	for range 3 {
		must(t, dealer.Disconnect(router.LastEndpoint()))
		if err := dealer.Disconnect(router.LastEndpoint()); !errors.Is(err, ErrNotConnected) {
			t.Errorf("Disconnect again: %v", err)
		}
		seen.Await(t, EventDisconnected)
		must(t, dealer.Connect(router.LastEndpoint()))
		must(t, dealer.Send(ctx, []byte("y")))
		_, err = router.Recv(ctx)
		must(t, err)
	}
	if err := dealer.Disconnect("tcp://127.0.0.1:1"); !errors.Is(err, ErrNotConnected) {
		t.Errorf("Disconnect of what was never connected: %v", err)
	}
}

// TestConnectAgain: types other than those make another connection, and
// Disconnect ends all of them; with inproc every type does.
func TestConnectAgain(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, endpoint := range []string{anyPort, "inproc://again"} {
		t.Run(endpoint[:3], func(t *testing.T) {
			t.Parallel()
			o := inprocOptions()
			pull := open(t, NewPull, o)
			must(t, pull.Bind(ctx, endpoint))
			push := open(t, NewPush, o)
			for range 3 {
				must(t, push.Connect(pull.LastEndpoint()))
			}
			eventually(t, "three connections", func() bool { return len(pull.Peers()) == 3 })
			const each = 10
			for range 3 * each {
				must(t, push.Send(ctx, []byte("m")))
			}
			for range 3 * each {
				_, err := pull.Recv(ctx)
				must(t, err)
			}
			for _, p := range pull.Peers() {
				if p.MessagesIn != each {
					t.Errorf("%d messages came by a connection, want %d", p.MessagesIn, each)
				}
			}
			must(t, push.Disconnect(pull.LastEndpoint()))
			eventually(t, "none is left", func() bool { return len(pull.Peers()) == 0 })
			if err := push.Disconnect(pull.LastEndpoint()); !errors.Is(err, ErrNotConnected) {
				t.Errorf("Disconnect again: %v", err)
			}
			must(t, push.Connect(pull.LastEndpoint()))
			must(t, push.Send(ctx, []byte("m")))
			_, err := pull.Recv(ctx)
			must(t, err)
		})
	}
}

// TestDisconnectLingers: messages sent before Disconnect arrive; later ones go to
// other peers.
func TestDisconnectLingers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first, second := bind(t, NewRouter, Options{}), bind(t, NewRouter, Options{})
	dealer := open(t, NewDealer, quick(Options{SendHWM: -1}))
	must(t, dealer.Connect(first.LastEndpoint()))
	const n = 1000
	for i := range n {
		must(t, dealer.Send(ctx, fmt.Append(nil, i), make([]byte, 10_000)))
	}
	must(t, dealer.Connect(second.LastEndpoint()))
	must(t, dealer.Disconnect(first.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("after")))
	for i := range n {
		m, err := first.Recv(ctx)
		must(t, err)
		if string(m[1]) != fmt.Sprint(i) {
			t.Fatalf("%q instead of %d", m[1], i)
		}
	}
	m, err := second.Recv(ctx)
	must(t, err)
	if string(m[1]) != "after" {
		t.Errorf("%q", m[1])
	}
	eventually(t, "the connection ends", func() bool { return len(first.Peers()) == 0 && len(dealer.Peers()) == 1 })
}

// TestDisconnectAtOnce: with LingerNone messages are dropped at once, and
// otherwise after Linger.
func TestDisconnectAtOnce(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, linger := range []time.Duration{LingerNone, time.Millisecond} {
		dealer := open(t, NewDealer, Options{Linger: linger})
		endpoint := freePort(t)
		must(t, dealer.Connect(endpoint))
		must(t, dealer.Send(ctx, []byte("lost")))
		must(t, dealer.Disconnect(endpoint))
		eventually(t, "the queue is given up", func() bool { return len(dealer.Peers()) == 0 })
	}
}

// TestReconnect: a socket reconnects to a peer that restarts, any number of times.
func TestReconnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	dealer := open(t, NewDealer, quick(Options{Identity: []byte("me"), Monitor: seen.Tell}))
	endpoint := freePort(t)
	must(t, dealer.Connect(endpoint))
	for i := range 5 {
		router := open(t, NewRouter, Options{})
		must(t, router.Bind(ctx, endpoint))
		seen.Await(t, EventHandshakeSucceeded)
		must(t, dealer.Send(ctx, fmt.Append(nil, i)))
		m, err := router.Recv(ctx)
		must(t, err)
		if fmt.Sprint(texts(m)) != fmt.Sprintf("[me %d]", i) {
			t.Fatalf("%q", m)
		}
		must(t, router.Send(ctx, m...))
		_, err = dealer.Recv(ctx)
		must(t, err)
		must(t, router.Close())
		seen.Await(t, EventDisconnected)
		seen.Await(t, EventConnectRetried)
	}
}

// TestConnectGivesUp: with ReconnectStopOnProtocolError a socket does not connect again to an
// incompatible peer, and reports that to the monitor; Connect can then be called
// again.
func TestConnectGivesUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says [][]byte
		want error
	}{
		"no ZMTP":             {[][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n")}, zmtp.ErrVersion},
		"an old wrong type":   {[][]byte{{0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 1, 1}}, zmtp.ErrIncompatible},
		"another mechanism":   {[][]byte{zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "PLAIN"})}, zmtp.ErrMechanism},
		"another socket type": {[][]byte{greeting(1), ready("PUB", nil)}, zmtp.ErrIncompatible},
		"ERROR":               {[][]byte{greeting(1), zmtp.AppendError(nil, "go away")}, zmtp.ErrRefused},
		"garbage later":       {[][]byte{greeting(1), ready("ROUTER", nil), {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}}, zmtp.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			endpoint, accept := listenRaw(t)
			seen := newEvents()
			dealer := open(t, NewDealer, quick(Options{Monitor: seen.Tell, ReconnectStop: ReconnectStopOnProtocolError}))
			must(t, dealer.Connect(endpoint))
			must(t, dealer.Send(ctx, []byte("lost")))
			r := accept()
			r.Send(c.says...)
			r.Ended()
			eventually(t, "it is given up", func() bool { return len(dealer.Peers()) == 0 })
			kind := EventHandshakeFailed
			if name == "garbage later" {
				kind = EventDisconnected
			}
			e := seen.Await(t, kind)
			var typed *zmtp.ProtocolError
			if !errors.Is(e.Err, c.want) || !errors.As(e.Err, &typed) {
				t.Errorf("%v, want %v", e.Err, c.want)
			}
			if n := seen.Count(EventConnectRetried); n != 0 {
				t.Errorf("it was to be dialled again %d times", n)
			}
			if err := dealer.Disconnect(endpoint); !errors.Is(err, ErrNotConnected) {
				t.Errorf("Disconnect: %v", err)
			}
			must(t, dealer.Connect(endpoint))
			must(t, dealer.Send(ctx, []byte("now")))
			r = accept().Greet("ROUTER", nil)
			if m := r.Message(); string(m[0]) != "now" {
				t.Errorf("%q", m)
			}
		})
	}
}

// TestConnectTriesAgain: a socket connects again after temporary failures: a peer that
// closes the connection or is silent in the handshake, or closes it later.
func TestConnectTriesAgain(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(r *raw){
		"closes at once":     func(r *raw) { r.Conn.Close() },
		"closes in greeting": func(r *raw) { r.Send(greeting(1)[:20]); r.Conn.Close() },
		"closes in READY":    func(r *raw) { r.Send(greeting(1), ready("ROUTER", nil)[:10]); r.Conn.Close() },
		"resets in READY": func(r *raw) {
			r.Send(greeting(1))
			_ = r.Conn.(*net.TCPConn).SetLinger(0)
			r.Conn.Close()
		},
		"is silent":    func(r *raw) { r.Ended() },
		"closes later": func(r *raw) { r.Greet("ROUTER", nil); r.Conn.Close() },
		"resets later": func(r *raw) {
			r.Greet("ROUTER", nil)
			_ = r.Conn.(*net.TCPConn).SetLinger(0)
			r.Conn.Close()
		},
		"ends in a frame": func(r *raw) {
			r.Greet("ROUTER", nil).Send([]byte{zmtp.FlagLong, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3})
			r.Conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint, accept := listenRaw(t)
			seen := newEvents()
			o := quick(Options{Linger: LingerNone, Monitor: seen.Tell})
			if name == "is silent" {
				o.HandshakeTimeout = 100 * time.Millisecond
			}
			dealer := open(t, NewDealer, o)
			must(t, dealer.Connect(endpoint))
			for range 3 {
				spoil(accept())
				seen.Await(t, EventConnectRetried)
			}
			r := accept()
			for r.TryGreet("ROUTER", nil) != nil || r.TrySync() != nil {
				r = accept() // on a busy machine one of us may have been too slow
			}
		})
	}
}

// TestNoReconnect: with a negative interval a socket does not reconnect.
func TestNoReconnect(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		seen := newEvents()
		dealer := open(t, NewDealer, Options{ReconnectInterval: -1, Linger: LingerNone, Monitor: seen.Tell})
		if refused {
			must(t, dealer.Connect(freePort(t)))
			seen.Await(t, EventConnectFailed)
		} else {
			endpoint, accept := listenRaw(t)
			must(t, dealer.Connect(endpoint))
			accept().Greet("ROUTER", nil).Conn.Close()
			seen.Await(t, EventDisconnected)
		}
		eventually(t, "it is forgotten", func() bool { return len(dealer.Peers()) == 0 })
		if n := seen.Count(EventConnectRetried); n != 0 {
			t.Errorf("%d retries", n)
		}
	}
}

// TestConnectName: a name is resolved again at each attempt.
func TestConnectName(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect(strings.Replace(router.LastEndpoint(), "127.0.0.1", "localhost", 1)))
	must(t, dealer.Send(ctx, []byte("x")))
	_, err := router.Recv(ctx)
	must(t, err)
}
