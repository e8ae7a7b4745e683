package libzmq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/sockettest"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Single assertions of libzmq's programs that no other test has; a row of
// docs/CONFORMANCE.md names each.

// TestLibzmq_inproc_pairs: PAIRs over inproc, bound before or after they connect, in
// any order at once, and after another socket has left the name.
func TestLibzmq_inproc_pairs(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	pair := func() *sockets.Pair { return open(t, sockets.NewPair, o) }
	first := pair()
	must(t, first.Bind(ctx, "inproc://unbind"))
	must(t, first.Unbind("inproc://unbind"))
	for name, late := range map[string]bool{"inproc://before": false, "inproc://after": true, "inproc://unbind": false} {
		bound, connected := pair(), pair()
		if !late {
			must(t, bound.Bind(ctx, name))
		}
		must(t, connected.Connect(name))
		says(t, connected, "foobar")
		if late {
			must(t, bound.Bind(ctx, name))
		}
		wants(t, bound, "foobar")
	}
	var wg sync.WaitGroup
	for i := range 50 {
		name := fmt.Sprint("inproc://foo_", i)
		bound, connected := pair(), pair()
		wg.Go(func() {
			if err := errors.Join(connected.Connect(name), connected.Send(ctx, []byte("there"))); err != nil {
				t.Error(err)
			}
			if m, err := connected.Recv(ctx); err != nil || string(m[0]) != "foobar" {
				t.Errorf("%q, %v", m, err)
			}
		})
		wg.Go(func() {
			if err := errors.Join(bound.Bind(ctx, name), bound.Send(ctx, []byte("foobar"))); err != nil {
				t.Error(err)
			}
		})
	}
	pull := open(t, sockets.NewPull, o)
	for range 30 {
		push := open(t, sockets.NewPush, o)
		wg.Go(func() {
			if err := errors.Join(push.Connect("inproc://sink"), push.Send(ctx, []byte("foobar")), push.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	must(t, pull.Bind(ctx, "inproc://sink"))
	for range 30 {
		wants(t, pull, "foobar")
	}
	wg.Wait()
	for i := range 20 { // which nobody ever binds
		router := open(t, sockets.NewRouter, o)
		must(t, router.Connect(fmt.Sprint("inproc://nobody", i)))
		must(t, router.Close())
	}
	pub, sub := open(t, sockets.NewPub, o), open(t, sockets.NewSub, o)
	must(t, pub.Connect("inproc://pubsub"))
	says(t, pub, "before")
	must(t, sub.Subscribe(""))
	must(t, sub.Bind(ctx, "inproc://pubsub"))
	must(t, pub.WaitSubscribers(ctx, "", 1))
	says(t, pub, "after")
	wants(t, sub, "after")
}

// TestLibzmq_hwm_closed: what a PUSH has queued for an inproc name that nobody has bound,
// as many messages as its mark, comes when it is closed and somebody binds it.
func TestLibzmq_hwm_closed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	push := open(t, sockets.NewPush, sockets.Options{Inproc: o.Inproc, SendHWM: 1})
	must(t, push.Connect("inproc://a"))
	if n := fill(t, push.TrySend, nil); n != 1 {
		t.Errorf("%d messages are sent with a mark of 1", n)
	}
	closed := make(chan error, 1)
	go func() { closed <- push.Close() }()
	pull := open(t, sockets.NewPull, sockets.Options{Inproc: o.Inproc, RecvHWM: -1})
	must(t, pull.Bind(ctx, "inproc://a"))
	wants(t, pull, "")
	must(t, <-closed)
	wantQueued(t, pull)
	alone := open(t, sockets.NewPush, sockets.Options{Inproc: o.Inproc, SendHWM: 1})
	must(t, alone.Bind(ctx, "inproc://b"))
	if n := fill(t, alone.TrySend, nil); n != 0 {
		t.Errorf("%d messages are sent to nobody", n)
	}
}

// TestLibzmq_reconnect_ivl_pair: with a negative interval a PAIR has no connection after
// Unbind, nor after the next Bind, until it connects again.
func TestLibzmq_reconnect_ivl_pair(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"tcp://127.0.0.1:*", "tcp://[::1]:*", "ipc"} {
		t.Run(endpoint, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			at := endpoint
			switch endpoint {
			case "ipc":
				at = "ipc://" + sockettest.SocketPath(t)
			case "tcp://[::1]:*":
				hasIPv6(t)
			}
			bound := open(t, sockets.NewPair, sockets.Options{IPv6: true, Linger: sockets.LingerNone})
			must(t, bound.Bind(ctx, at))
			at = bound.LastEndpoint()
			connected := open(t, sockets.NewPair, sockets.Options{IPv6: true, ReconnectInterval: -1, Linger: sockets.LingerNone})
			must(t, connected.Connect(at))
			bounced(t, bound, connected)
			must(t, bound.Unbind(at))
			apart := func() {
				t.Helper()
				eventually(t, "they are apart", func() bool { return len(bound.Peers())+len(connected.Peers()) == 0 })
				for _, s := range []*sockets.Pair{bound, connected} {
					if err := s.TrySend([]byte("nobody")); !errors.Is(err, sockets.ErrWouldBlock) {
						t.Errorf("%v", err)
					}
					wantQueued(t, s)
				}
			}
			apart()
			must(t, bound.Bind(ctx, at))
			apart()
			must(t, connected.Connect(at))
			bounced(t, bound, connected)
		})
	}
}

// TestLibzmq_reconnect_events: the events of a SUB whose PUB goes, and comes back, in
// order and none besides.
func TestLibzmq_reconnect_events(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint := freePort(t)
	pub := open(t, sockets.NewPub, sockets.Options{Linger: sockets.LingerNone})
	must(t, pub.Bind(ctx, endpoint))
	seen := newEvents()
	sub := open(t, sockets.NewSub, sockets.Options{ReconnectInterval: 500 * time.Millisecond, Monitor: seen.Tell})
	must(t, sub.Connect(endpoint))
	seen.Await(t, sockets.EventHandshakeSucceeded)
	must(t, pub.Close())
	seen.Await(t, sockets.EventConnectRetried)
	again := open(t, sockets.NewPub, sockets.Options{})
	must(t, again.Bind(ctx, endpoint))
	seen.Await(t, sockets.EventHandshakeSucceeded)
	want := []sockets.EventKind{sockets.EventConnectDelayed, sockets.EventConnected, sockets.EventHandshakeSucceeded, sockets.EventDisconnected, sockets.EventConnectRetried,
		sockets.EventConnectDelayed, sockets.EventConnected, sockets.EventHandshakeSucceeded}
	if got := seen.Kinds(); fmt.Sprint(got) != fmt.Sprint(want) && seen.Count(sockets.EventConnectFailed) == 0 { // the machine may be slow
		t.Errorf("%v, want %v", got, want)
	}
}

// TestLibzmq_immediate_again: a DEALER that queues nothing without a connection cannot
// send while its peer is away, and can when it is back.
func TestLibzmq_immediate_again(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint := freePort(t)
	backend := open(t, sockets.NewDealer, sockets.Options{Linger: sockets.LingerNone})
	must(t, backend.Bind(ctx, endpoint))
	seen := newEvents()
	frontend := open(t, sockets.NewDealer, quick(sockets.Options{Immediate: true, Linger: sockets.LingerNone, Monitor: seen.Tell}))
	must(t, frontend.Connect(endpoint))
	says(t, backend, "Hello")
	wants(t, frontend, "Hello")
	must(t, frontend.TrySend([]byte("Hello")))
	must(t, backend.Close())
	seen.Await(t, sockets.EventDisconnected)
	if err := frontend.TrySend([]byte("Hello")); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("while nobody is there: %v", err)
	}
	backend = open(t, sockets.NewDealer, sockets.Options{Linger: sockets.LingerNone})
	must(t, backend.Bind(ctx, endpoint))
	says(t, backend, "Hello")
	wants(t, frontend, "Hello")
	must(t, frontend.TrySend([]byte("Hello")))
}

// TestLibzmq_timeo_inproc: a call that has a time-out does not end before it.
func TestLibzmq_timeo_inproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	const timeout = 50 * time.Millisecond
	frontend := open(t, sockets.NewDealer, o)
	must(t, frontend.Bind(ctx, "inproc://timeout"))
	wantQueued(t, frontend)
	must(t, frontend.SetOptions(func(o *sockets.Options) { o.RecvTimeout = timeout }))
	start := time.Now()
	if _, err := frontend.Recv(ctx); !errors.Is(err, sockets.ErrTimeout) || time.Since(start) < timeout {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	backend := dialled(t, sockets.NewDealer, o, frontend.LastEndpoint())
	must(t, backend.SetOptions(func(o *sockets.Options) { o.SendTimeout = timeout }))
	says(t, backend, "Hello")
	must(t, frontend.SetOptions(func(o *sockets.Options) { o.RecvTimeout = 0 }))
	wants(t, frontend, "Hello")
}

// TestLibzmq_endpoints: the bound side cannot send after Unbind; LastEndpoint is what was
// bound; and endpoints without an address, or a port, or of no transport are refused.
func TestLibzmq_endpoints(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := open(t, sockets.NewPush, sockets.Options{Linger: sockets.LingerNone})
	for range 2 {
		endpoint := freePort(t)
		must(t, push.Bind(ctx, endpoint))
		if got := push.LastEndpoint(); got != endpoint {
			t.Errorf("%s is bound as %s", endpoint, got)
		}
		pull := dialled(t, sockets.NewPull, sockets.Options{ReconnectInterval: -1}, push.LastEndpoint())
		says(t, push, "ABC")
		wants(t, pull, "ABC")
		must(t, push.Unbind(endpoint))
		eventually(t, "it has no peer", func() bool { return len(push.Peers()) == 0 })
		if err := push.TrySend([]byte("ABC")); !errors.Is(err, sockets.ErrWouldBlock) {
			t.Errorf("after Unbind: %v", err)
		}
	}
	for _, bad := range []string{"tcp://", "tcp://192.168.0.200:*", "invalid://localhost:1234"} {
		var typed *sockets.EndpointError
		if err := push.Connect(bad); !errors.As(err, &typed) || strings.HasPrefix(bad, "invalid") && !errors.Is(err, syscall.EPROTONOSUPPORT) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestLibzmq_router_notify_none: there is no notice of a peer whose handshake failed, nor
// a part of a message that ended its connection before the notice; Notify is off at first,
// takes its four values and no others, and is of a ROUTER.
func TestLibzmq_router_notify_none(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, sockets.NewRouter, sockets.Options{Notify: sockets.NotifyConnect | sockets.NotifyDisconnect, Monitor: seen.Tell})
	r := dialRaw(t, router.LastEndpoint())
	r.Send([]byte("not-a-handshake"))
	r.Conn.Close()
	seen.Await(t, sockets.EventHandshakeFailed)
	wantQueued(t, router)

	router = bind(t, sockets.NewRouter, sockets.Options{Notify: sockets.NotifyDisconnect, MaxMessageSize: 64, Monitor: seen.Tell})
	r = dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("X"))
	r.Send(wire("Hello2", strings.Repeat("*", 127)))
	wants(t, router, "X ")
	wantQueued(t, router)

	router = open(t, sockets.NewRouter, sockets.Options{})
	if n := router.Options().Notify; n != 0 {
		t.Errorf("%v at first", n)
	}
	for _, n := range []sockets.Notify{sockets.NotifyConnect, sockets.NotifyDisconnect, 0, sockets.NotifyConnect | sockets.NotifyDisconnect} {
		must(t, router.SetOptions(func(o *sockets.Options) { o.Notify = n }))
		if got := router.Options().Notify; got != n {
			t.Errorf("%v, not %v", got, n)
		}
	}
	const both = sockets.NotifyConnect | sockets.NotifyDisconnect
	for _, bad := range []sockets.Notify{0xff, both + 4} {
		if router.SetOptions(func(o *sockets.Options) { o.Notify = bad }) == nil || router.Options().Notify != both {
			t.Errorf("%v is taken: %v", bad, router.Options().Notify)
		}
	}
	if _, err := sockets.NewDealer(sockets.Options{Notify: sockets.NotifyConnect}); err == nil {
		t.Error("a DEALER takes it")
	}
}

// TestLibzmq_router_speaks_first: a ROUTER that knows the name of a DEALER reaches it as
// soon as it is there, a hundred times; and one that names its peer while a message of
// another peer waits sends to the right one.
func TestLibzmq_router_speaks_first(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, sockets.NewRouter, sockets.Options{Mandatory: true})
	for i := range 100 {
		name := fmt.Appendf(nil, "%09d\x00", i)
		dealer := dialled(t, sockets.NewDealer, sockets.Options{Identity: name}, router.LastEndpoint())
		eventually(t, "it is routable", func() bool {
			err := router.TrySend(name, []byte("HELLO"))
			if err != nil && !errors.Is(err, sockets.ErrUnroutable) {
				t.Fatal(err)
			}
			return err == nil
		})
		wants(t, dealer, "HELLO")
		must(t, dealer.Close())
	}

	x, z := bind(t, sockets.NewRouter, sockets.Options{Identity: []byte("X")}), bind(t, sockets.NewRouter, sockets.Options{Identity: []byte("Z")})
	y := open(t, sockets.NewRouter, sockets.Options{Identity: []byte("Y")})
	must(t, y.ConnectAs(x.LastEndpoint(), []byte("X")))
	must(t, y.Send(ctx, []byte("X"), []byte("hi 1")))
	eventually(t, "the message waits", func() bool { return pending(x.Peers()) == 1 })
	must(t, x.ConnectAs(z.LastEndpoint(), []byte("Z")))
	must(t, x.Send(ctx, []byte("Z"), []byte("hi 1")))
	wants(t, z, "X hi 1")
	wantQueued(t, y)

	// A STREAM names the other side too, and a probing ROUTER is answered by a name of
	// five bytes.
	server, client := bind(t, sockets.NewStream, sockets.Options{Notify: sockets.NotifyNone}), open(t, sockets.NewStream, sockets.Options{})
	must(t, client.ConnectAs(server.LastEndpoint(), []byte("conn1")))
	must(t, client.Send(ctx, []byte("conn1"), []byte("hi 1")))
	m, err := server.Recv(ctx)
	must(t, err)
	if len(m) != 2 || m[0][0] != 0 || string(m[1]) != "hi 1" {
		t.Errorf("%q", m)
	}
	probe := dialled(t, sockets.NewRouter, sockets.Options{ProbeRouter: true, Identity: []byte("P")}, z.LastEndpoint())
	wants(t, z, "P ")
	must(t, z.Send(ctx, []byte("P"), []byte("Hello")))
	if m, err = probe.Recv(ctx); err != nil || string(m[0]) != "Z" || string(m[1]) != "Hello" {
		t.Errorf("%q, %v", m, err)
	}
}

// TestLibzmq_app_meta_reply: the properties of the side that answers reach the other one.
func TestLibzmq_app_meta_reply(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, sockets.NewRep, sockets.Options{Metadata: map[string]string{"X-hello": "world", "X-connection": "backup"}})
	req := dialled(t, sockets.NewReq, sockets.Options{Metadata: map[string]string{"X-hello": "hello", "X-bin": "009c6"}}, rep.LastEndpoint())
	says(t, req, "\x01")
	_, from, err := rep.RecvFrom(ctx)
	must(t, err)
	says(t, rep, "\x01")
	_, to, err := req.RecvFrom(ctx)
	must(t, err)
	for _, c := range []struct {
		peer       *sockets.Peer
		name, want string
	}{{from, "X-hello", "hello"}, {from, "X-bin", "009c6"}, {to, "X-hello", "world"}, {to, "X-connection", "backup"}} {
		if got, _ := c.peer.Property(c.name); got != c.want {
			t.Errorf("%s is %q, want %q", c.name, got, c.want)
		}
	}
}

// TestLibzmq_pubsub_counts: a PUB over inproc counts topics that are apart and such of
// which one is the beginning of another.
func TestLibzmq_pubsub_counts(t *testing.T) {
	t.Parallel()
	o := inprocOptions()
	pub, sub := open(t, sockets.NewPub, o), open(t, sockets.NewSub, o)
	must(t, pub.Bind(testContext(t), "inproc://a"))
	must(t, sub.Connect("inproc://a"))
	n := 0
	change := func(by int, f func(string) error, topics ...string) {
		t.Helper()
		for _, topic := range topics {
			must(t, f(topic))
			n += by
			if here, there := sub.Subscriptions(), pub.Subscriptions(); here != n || there != n {
				t.Errorf("%d and %d topics, want %d", here, there, n)
			}
		}
	}
	change(1, sub.Subscribe, "topicprefix1", "topicprefix2", "topicprefix3")
	change(-1, sub.Unsubscribe, "topicprefix3", "topicprefix1", "topicprefix2")
	change(1, sub.Subscribe, "a", "ab", "abc", "xyz", "xy", "x")
}

// TestLibzmq_xpub_inproc: with XPUB_NODROP as many messages as the mark come, and exactly
// those that TrySend took; and an option that is set after Bind welcomes a SUB.
func TestLibzmq_xpub_inproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	pub := open(t, sockets.NewXPub, sockets.Options{Inproc: o.Inproc, SendHWM: 2000})
	must(t, pub.Bind(ctx, "inproc://a"))
	must(t, pub.SetOptions(func(o *sockets.Options) { o.FullPolicy = sockets.PolicyBlock }))
	sub := dialled(t, sockets.NewSub, o, pub.LastEndpoint())
	must(t, sub.Subscribe(""))
	wants(t, pub, "\x01")
	for range 1999 {
		must(t, pub.Send(ctx, nil))
	}
	if n := len(drained(t, sub)); n != 1999 {
		t.Errorf("%d of 1999 messages came", n)
	}
	sent := fill(t, pub.TrySend, nil)
	if n := len(drained(t, sub)); n != sent || n < 2000 {
		t.Errorf("%d of %d messages came", n, sent)
	}

	pub = open(t, sockets.NewXPub, o)
	must(t, pub.Bind(ctx, "inproc://b"))
	must(t, pub.SetOptions(func(o *sockets.Options) { o.WelcomeMessage = []byte("W") }))
	sub = open(t, sockets.NewSub, o)
	must(t, sub.Subscribe("W"))
	must(t, sub.Connect("inproc://b"))
	wants(t, pub, "\x01W")
	wants(t, sub, "W")
}

// TestLibzmq_xpub_manual_device: two subscribers to a topic behind a device; each is told
// of, and its end is. With the last-value option the next message is the second one's, and
// a peer that comes later has the subscriptions that the application makes.
func TestLibzmq_xpub_manual_device(t *testing.T) {
	t.Parallel()
	for _, last := range []bool{false, true} {
		t.Run(fmt.Sprint("last value ", last), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			xpub := bind(t, sockets.NewXPub, sockets.Options{XPubManual: !last, XPubManualLastValue: last})
			xsub := bind(t, sockets.NewXSub, sockets.Options{})
			pub := dialled(t, sockets.NewPub, sockets.Options{}, xsub.LastEndpoint())
			var subs []*sockets.Sub
			for range 2 {
				sub := dialled(t, sockets.NewSub, sockets.Options{}, xpub.LastEndpoint())
				must(t, sub.Subscribe("1"))
				wants(t, xpub, "\x011")
				must(t, xpub.Subscribe("1"))
				says(t, xsub, "\x011")
				subs = append(subs, sub)
			}
			must(t, pub.WaitSubscribers(ctx, "1", 1))
			must(t, pub.Send(ctx, []byte("1"), []byte("X")))
			wants(t, xsub, "1 X")
			must(t, xpub.Send(ctx, []byte("1"), []byte("X")))
			wants(t, subs[1], "1 X")
			if last {
				must(t, xpub.Send(ctx, []byte("1"), []byte("X")))
				wants(t, subs[1], "1 X")
			}
			wants(t, subs[0], "1 X")
			wantQueued(t, subs[0])
			for _, sub := range subs {
				must(t, sub.Close())
				wants(t, xpub, "\x001")
				if err := xpub.Unsubscribe("1"); !errors.Is(err, sockets.ErrUnroutable) { // libzmq: no error
					t.Errorf("Unsubscribe for who has gone: %v", err)
				}
				says(t, xsub, "\x001")
			}
			eventually(t, "the publisher has no subscription", func() bool { return pub.Subscriptions() == 0 })
			says(t, pub, "1")
			wantQueued(t, xsub)

			for _, topic := range []string{"A", "B"} {
				sub := dialled(t, sockets.NewXSub, sockets.Options{}, xpub.LastEndpoint())
				says(t, sub, "\x01"+topic)
				wants(t, xpub, "\x01"+topic)
				must(t, xpub.Subscribe("X"+topic))
				says(t, xpub, "XA", "XB")
				if last && topic == "B" {
					// The first message went to this one alone, which it is not for.
					wants(t, sub, "XB")
				} else {
					wants(t, sub, "X"+topic)
				}
				wantQueued(t, sub)
				must(t, sub.Close())
				wants(t, xpub, "\x00"+topic)
			}
		})
	}
}

// TestLibzmq_heartbeats_answered: peers that answer each other's PINGs stay connected, of
// each pair of types, with NULL and CURVE.
func TestLibzmq_heartbeats_answered(t *testing.T) {
	t.Parallel()
	ours, theirs := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	for name, pair := range map[string][2]func(testing.TB, sockets.Options) sockets.Socket{
		"DEALER ROUTER": {maker(sockets.NewDealer), maker(sockets.NewRouter)},
		"REQ REP":       {maker(sockets.NewReq), maker(sockets.NewRep)},
		"PAIR PAIR":     {maker(sockets.NewPair), maker(sockets.NewPair)},
		"PULL PUSH":     {maker(sockets.NewPull), maker(sockets.NewPush)},
		"SUB PUB":       {maker(sockets.NewSub), maker(sockets.NewPub)},
	} {
		for mechanism, s := range map[string][2]sockets.Security{
			"NULL":  {},
			"CURVE": {{CurveSecretKey: theirs.Secret, CurveServerKey: ours.Public}, {CurveServer: true, CurveSecretKey: ours.Secret}},
		} {
			t.Run(name+" "+mechanism, func(t *testing.T) {
				t.Parallel()
				seen := newEvents()
				server := pair[1](t, sockets.Options{HeartbeatInterval: time.Millisecond, HeartbeatTimeout: hang, Monitor: seen.Tell, Security: s[1]})
				must(t, server.Bind(testContext(t), anyPort))
				must(t, pair[0](t, sockets.Options{Security: s[0]}).Connect(server.LastEndpoint()))
				seen.Await(t, sockets.EventHandshakeSucceeded)
				reads := server.(interface{ Reads() uint64 }).Reads
				from := reads()
				eventually(t, "20 answers", func() bool { return reads() >= from+20 })
				if n := seen.Count(sockets.EventDisconnected); n > 0 {
					t.Errorf("%d connections ended", n)
				}
			})
		}
	}
}

// TestLibzmq_proxies: a REP as both ends of a proxy answers with what it is asked; a SUB
// and a PUSH without peers end when they are closed; and a PAIR controls a proxy.
func TestLibzmq_proxies(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, sockets.NewRep, sockets.Options{})
	sockettest.Running(t, newProxy(t, rep, rep, sockets.ProxyOptions{}))
	req := dialled(t, sockets.NewReq, sockets.Options{}, rep.LastEndpoint())
	for _, m := range []string{"msg1", "msg22"} {
		says(t, req, m)
		wants(t, req, m)
	}

	front, back := bind(t, sockets.NewSub, sockets.Options{}), bind(t, sockets.NewPush, sockets.Options{Linger: sockets.LingerNone})
	must(t, front.Subscribe(""))
	p := newProxy(t, front, back, sockets.ProxyOptions{})
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	pub := dialled(t, sockets.NewPub, sockets.Options{}, front.LastEndpoint())
	must(t, pub.WaitSubscribers(ctx, "", 1))
	says(t, pub, "This is a test", "This is a test", "This is a test")
	must(t, front.Close())
	must(t, back.Close())
	if err := <-done; !errors.Is(err, sockets.ErrClosed) {
		t.Errorf("the proxy ends with %v", err)
	}

	// PAIR controls a proxy: nothing is forwarded before there is traffic, nor during a
	// pause.
	in, out, control := bind(t, sockets.NewPull, sockets.Options{}), bind(t, sockets.NewPush, sockets.Options{}), bind(t, sockets.NewPair, sockets.Options{})
	push, pull, operator := dialled(t, sockets.NewPush, sockets.Options{}, in.LastEndpoint()), dialled(t, sockets.NewPull, sockets.Options{}, out.LastEndpoint()), dialled(t, sockets.NewPair, sockets.Options{}, control.LastEndpoint())
	p = newProxy(t, in, out, sockets.ProxyOptions{Control: control})
	go func() { done <- p.Run(ctx) }()
	forwarded := func() uint64 {
		t.Helper()
		says(t, operator, "STATISTICS")
		m, err := operator.Recv(ctx)
		must(t, err)
		if len(m) != 8 || len(m[3]) != 8 || len(m[7]) != 8 {
			t.Fatalf("%q", m)
		}
		return binary.NativeEndian.Uint64(m[3]) + binary.NativeEndian.Uint64(m[7])
	}
	if n := forwarded(); n != 0 {
		t.Errorf("%d bytes before the first message", n)
	}
	says(t, push, "first")
	wants(t, pull, "first")
	eventually(t, "it is counted", func() bool { return forwarded() == 5 })
	says(t, operator, "PAUSE")
	forwarded() // it was obeyed
	says(t, push, "second")
	readable(t, in)
	if n := forwarded(); n != 5 {
		t.Errorf("%d bytes during a pause", n)
	}
	says(t, operator, "RESUME")
	wants(t, pull, "second")
	eventually(t, "it is counted", func() bool { return forwarded() == 11 })
	says(t, operator, "TERMINATE")
	must(t, <-done)
}
