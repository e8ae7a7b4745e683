package libzmq

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"clustermap/internal/hooks"
	"clustermap/internal/link"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestLibzmq_sockopt_hwm: high-water marks that change before a connection, while it
// exists, and while its queue is full. Over inproc, those of both sides add up.
func TestLibzmq_sockopt_hwm(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pairUp := func(t *testing.T, send, recv int, bindFirst bool) (*sockets.Push, *sockets.Pull) {
		t.Helper()
		names := new(sockets.Inproc)
		push, pull := open(t, sockets.NewPush, sockets.Options{Inproc: names}), open(t, sockets.NewPull, sockets.Options{Inproc: names})
		must(t, pull.SetOptions(func(o *sockets.Options) { o.RecvHWM = recv }))
		must(t, push.SetOptions(func(o *sockets.Options) { o.SendHWM = send }))
		if bindFirst {
			must(t, push.Bind(ctx, "inproc://a"))
		}
		must(t, pull.Connect("inproc://a"))
		if !bindFirst {
			must(t, push.Bind(ctx, "inproc://a"))
		}
		return push, pull
	}
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		push, _ := pairUp(t, 2, 2, false)
		if hwm := push.Options().SendHWM; hwm != 2 {
			t.Errorf("SendHWM is %d", hwm)
		}
		if n := fill(t, push.TrySend, nil); n != 4 {
			t.Errorf("%d messages are sent, want 4", n)
		}
	})
	t.Run("after", func(t *testing.T) {
		t.Parallel()
		push, _ := pairUp(t, 1, 1, false)
		must(t, push.SetOptions(func(o *sockets.Options) { o.SendHWM = 5 }))
		if hwm := push.Options().SendHWM; hwm != 5 {
			t.Errorf("SendHWM is %d", hwm)
		}
		if n := fill(t, push.TrySend, nil); n != 6 {
			t.Errorf("%d messages are sent, want 6", n)
		}
	})
	t.Run("lower when full", func(t *testing.T) {
		t.Parallel()
		push, pull := pairUp(t, 100, 1, true)
		sent := 0
		for push.TrySend(fmt.Append(nil, sent)) == nil {
			sent++
		}
		if sent > 101 || sent < 11 {
			t.Errorf("%d messages are sent with a mark of 100", sent)
		}
		must(t, push.SetOptions(func(o *sockets.Options) { o.SendHWM = 70 }))
		if hwm := push.Options().SendHWM; hwm != 70 {
			t.Errorf("SendHWM is %d", hwm)
		}
		got := drained(t, pull)
		if len(got) != sent {
			t.Errorf("%d messages are received of %d", len(got), sent)
		}
		for i, m := range got {
			if m != fmt.Sprint(i) {
				t.Fatalf("message %d is %q", i, m)
			}
		}
		if n := fill(t, push.TrySend, nil); n > 71 || n < 8 {
			t.Errorf("%d messages are sent with a mark of 70", n)
		}
	})
}

// TestLibzmq_setsockopt: options are returned as they were set.
func TestLibzmq_setsockopt(t *testing.T) {
	t.Parallel()
	push := open(t, sockets.NewPush, sockets.Options{})
	if o := push.Options(); o.RecvBuffer != 0 || o.SendBuffer != 0 || o.BindToDevice != "" {
		t.Errorf("%d %d %q at first", o.RecvBuffer, o.SendBuffer, o.BindToDevice)
	}
	must(t, push.SetOptions(func(o *sockets.Options) { o.RecvBuffer = 16384 }))
	if o := push.Options(); o.RecvBuffer != 16384 || o.SendBuffer != 0 {
		t.Errorf("%d %d", o.RecvBuffer, o.SendBuffer)
	}
	must(t, push.SetOptions(func(o *sockets.Options) { o.SendBuffer = 16384 }))
	if o := push.Options(); o.RecvBuffer != 16384 || o.SendBuffer != 16384 {
		t.Errorf("%d %d", o.RecvBuffer, o.SendBuffer)
	}
	if link.HaveDevice {
		must(t, push.SetOptions(func(o *sockets.Options) { o.BindToDevice = "testdev" })) // there need not be such a device yet
		if o := push.Options(); o.BindToDevice != "testdev" {
			t.Errorf("%q", o.BindToDevice)
		}
	}
}

// TestLibzmq_conflate: only the last message is received, with the option on either side.
func TestLibzmq_conflate(t *testing.T) {
	t.Parallel()
	t.Run("PULL", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		pull := bind(t, sockets.NewPull, sockets.Options{Conflate: true, RecvHWM: 1})
		r := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
		for i := range 100 {
			r.Send(wire(fmt.Sprint(i), "two frames"))
		}
		eventually(t, "all have come", func() bool {
			peers := pull.Peers()
			return len(peers) == 1 && peers[0].Discarded == 99
		})
		wantRecv(t, func() (sockets.Message, error) { return pull.Recv(ctx) }, "99", "two frames")
		if _, err := pull.TryRecv(); err != sockets.ErrWouldBlock {
			t.Errorf("%v", err)
		}
	})
	t.Run("PUSH", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		endpoint, accept := listenRaw(t)
		push := open(t, sockets.NewPush, quick(sockets.Options{Conflate: true, SendHWM: 1, Linger: sockets.LingerNone}))
		must(t, push.Connect(endpoint))
		last := func(want ...string) {
			t.Helper()
			if p := push.Peers()[0]; p.QueuedMessages != 1 || p.QueuedBytes != len(wire(want...)) {
				t.Errorf("%d messages of %d bytes in place of %q", p.QueuedMessages, p.QueuedBytes, want)
			}
		}
		l := testenv.NewLender()
		for range 3 {
			must(t, push.Send(ctx, []byte("old"), make([]byte, 1000)))
			must(t, push.Send(ctx, []byte("new"), []byte("whole")))
			last("new", "whole")
			n, err := push.SendBatch(ctx, [][]byte{[]byte("a"), []byte("b"), []byte("c")})
			must(t, err)
			if n != 3 {
				t.Errorf("%d of 3 were sent", n)
			}
			last("c")
			many := append(wire("long", string(make([]byte, 1<<20))), wire("last", "", "one")...)
			must(t, hooks.SendWire(ctx, push, many, 2, l))
			last("last", "", "one")
		}
		if l.Retained.Load() != 0 {
			t.Error("something was lent")
		}
		r := accept().Greet("PULL", nil)
		if m := r.Message(); fmt.Sprint(texts(m)) != "[last  one]" {
			t.Errorf("%q", m)
		}
	})
	t.Run("PUB", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		pub := bind(t, sockets.NewPub, sockets.Options{Conflate: true, SendHWM: 1, FullPolicy: sockets.PolicyDisconnect, Linger: sockets.LingerNone})
		r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
		r.Send(wire("\x01"))
		must(t, pub.WaitSubscribers(ctx, "", 1))
		must(t, pub.Send(ctx, plug))
		for i := range 1000 {
			must(t, pub.Send(ctx, fmt.Append(nil, i)))
		}
		next := -1
		for next < 999 {
			m := r.Message()
			if len(m[0]) == len(plug) {
				continue
			}
			n := 0
			_, err := fmt.Sscan(string(m[0]), &n)
			must(t, err)
			if n <= next {
				t.Fatalf("%d came after %d", n, next)
			}
			next = n
		}
	})
	for _, where := range []string{"sender", "receiver"} {
		t.Run("inproc "+where, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			var names sockets.Inproc
			a := open(t, sockets.NewDealer, sockets.Options{Inproc: &names, SendHWM: 2, Conflate: where == "sender"})
			b := open(t, sockets.NewDealer, sockets.Options{Inproc: &names, RecvHWM: 2, Conflate: where == "receiver"})
			must(t, b.Bind(ctx, "inproc://x"))
			must(t, a.Connect("inproc://x"))
			for range 3 {
				for i := range 10 {
					must(t, a.TrySend(fmt.Append(nil, i)))
				}
				wantRecv(t, b.TryRecv, "9")
				if _, err := b.TryRecv(); err != sockets.ErrWouldBlock {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// TestLibzmq_heartbeats: the requirements of libzmq's test of that name.
func TestLibzmq_heartbeats(t *testing.T) {
	t.Parallel()
	t.Run("silent peer", func(t *testing.T) {
		t.Parallel()
		// It is dropped after a PING, and only then.
		seen := newEvents()
		router := bind(t, sockets.NewRouter, sockets.Options{HeartbeatInterval: 20 * time.Millisecond, Monitor: seen.Tell})
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
		if name, data := r.Command(); name != "PING" || data != "\x00\x00" {
			t.Errorf("%s %q", name, data)
		}
		r.Ended()
		if e := seen.Await(t, sockets.EventDisconnected); !errors.Is(e.Err, sockets.ErrHeartbeatTimeout) {
			t.Errorf("%v", e.Err)
		}
	})
	t.Run("context", func(t *testing.T) {
		t.Parallel()
		// It is echoed, but no more than 16 bytes.
		router := bind(t, sockets.NewRouter, sockets.Options{})
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
		for _, size := range []int{0, 3, 15, 16, 17, 100} {
			context := []byte("LOL" + fmt.Sprintf("%0100d", 1))[:size]
			r.Send(zmtp.AppendCommand(nil, "PING", append([]byte{0, 0}, context...)))
			if name, data := r.Command(); name != "PONG" || data != string(context[:min(size, 16)]) {
				t.Errorf("%d bytes: %s %q", size, name, data)
			}
		}
	})
	t.Run("ttl", func(t *testing.T) {
		t.Parallel()
		// The side that dials sends PINGs with a ttl, too seldom for it: the
		// other one, which has no heartbeats of its own, ends the connection.
		seldom := sockets.Options{HeartbeatInterval: 200 * time.Millisecond, HeartbeatTimeout: hang, HeartbeatTTL: 100 * time.Millisecond}
		for name, pair := range map[string][2]func(testing.TB, sockets.Options) sockets.Socket{
			"DEALER ROUTER": {maker(sockets.NewDealer), maker(sockets.NewRouter)},
			"REQ REP":       {maker(sockets.NewReq), maker(sockets.NewRep)},
			"PAIR PAIR":     {maker(sockets.NewPair), maker(sockets.NewPair)},
			"PULL PUSH":     {maker(sockets.NewPull), maker(sockets.NewPush)},
			"SUB PUB":       {maker(sockets.NewSub), maker(sockets.NewPub)},
			"XSUB XPUB":     {maker(sockets.NewXSub), maker(sockets.NewXPub)},
		} {
			ours, theirs := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
			for mechanism, s := range map[string][2]sockets.Security{
				"NULL":  {},
				"CURVE": {{CurveSecretKey: theirs.Secret, CurveServerKey: ours.Public}, {CurveServer: true, CurveSecretKey: ours.Secret}},
			} {
				t.Run(name+" "+mechanism, func(t *testing.T) {
					t.Parallel()
					seen := newEvents()
					server := pair[1](t, sockets.Options{Monitor: seen.Tell, Security: s[1]})
					must(t, server.Bind(testContext(t), anyPort))
					client := seldom
					client.Security = s[0]
					must(t, pair[0](t, client).Connect(server.LastEndpoint()))
					if e := seen.Await(t, sockets.EventDisconnected); !errors.Is(e.Err, sockets.ErrHeartbeatTimeout) {
						t.Errorf("%v", e.Err)
					}
				})
			}
		}
	})
	t.Run("options", func(t *testing.T) {
		t.Parallel()
		for ttl, want := range map[time.Duration]uint16{
			0: 0, 99 * time.Millisecond: 0, 100 * time.Millisecond: 1, 199 * time.Millisecond: 1, 6553599 * time.Millisecond: 65535,
		} {
			router := bind(t, sockets.NewRouter, sockets.Options{HeartbeatInterval: time.Millisecond, HeartbeatTimeout: hang, HeartbeatTTL: ttl})
			r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
			if name, data := r.Command(); name != "PING" || data != string([]byte{byte(want >> 8), byte(want)}) {
				t.Errorf("%v: %s %q", ttl, name, data)
			}
		}
		for field, o := range map[string]sockets.Options{
			"HeartbeatTTL": {HeartbeatTTL: 6553600 * time.Millisecond}, "HeartbeatInterval": {HeartbeatInterval: -1},
			"HeartbeatTimeout": {HeartbeatTimeout: -1},
		} {
			var bad *sockets.OptionError
			if _, err := sockets.NewRouter(o); !errors.As(err, &bad) || bad.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := sockets.NewRouter(sockets.Options{HeartbeatTTL: -1}); err == nil {
			t.Error("a negative ttl")
		}
	})
}

// maker makes a socket of any type.
func maker[S sockets.Socket](create func(sockets.Options) (S, error)) func(testing.TB, sockets.Options) sockets.Socket {
	return func(t testing.TB, o sockets.Options) sockets.Socket {
		t.Helper()
		return open(t, create, o)
	}
}

// TestLibzmq_hello_msg: a new connection begins with the message, set on either side.
func TestLibzmq_hello_msg(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := quick(sockets.Options{HelloMessage: []byte("H")})
	t.Run("from the side that binds", func(t *testing.T) {
		t.Parallel()
		router := bind(t, sockets.NewRouter, o)
		for range 2 {
			dealer := dialled(t, sockets.NewDealer, sockets.Options{}, router.LastEndpoint())
			wants(t, dealer, "H")
		}
	})
	t.Run("from the side that connects", func(t *testing.T) {
		t.Parallel()
		router := bind(t, sockets.NewRouter, sockets.Options{})
		oo := o
		oo.Identity = []byte("me")
		dialled(t, sockets.NewDealer, oo, router.LastEndpoint())
		wants(t, router, "me H")
	})
	t.Run("from both", func(t *testing.T) {
		t.Parallel()
		one := bind(t, sockets.NewDealer, o)
		two := dialled(t, sockets.NewDealer, o, one.LastEndpoint())
		wants(t, one, "H")
		wants(t, two, "H")
	})
	t.Run("again", func(t *testing.T) {
		t.Parallel()
		// On each connection once, before the queued messages.
		endpoint, accept := listenRaw(t)
		dealer := dialled(t, sockets.NewDealer, quick(sockets.Options{HelloMessage: []byte("H"), Linger: sockets.LingerNone}), endpoint)
		must(t, dealer.Send(ctx, []byte("queued")))
		r := accept().Greet("ROUTER", nil)
		r.Wants("\x00\x01H\x00\x06queued")
		for range 3 {
			r.Conn.Close()
			r = accept().Greet("ROUTER", nil)
			r.Wants("\x00\x01H")
		}
	})
	t.Run("inproc", func(t *testing.T) {
		t.Parallel()
		router := open(t, sockets.NewRouter, o)
		must(t, router.Bind(ctx, "inproc://"+t.Name()))
		dealer := open(t, sockets.NewDealer, sockets.Options{HelloMessage: []byte("H2"), Identity: []byte("me")})
		must(t, dealer.Connect("inproc://"+t.Name()))
		must(t, dealer.Send(ctx, []byte("x")))
		wants(t, dealer, "H")
		wants(t, router, "me H2", "me x")
	})
}

// TestLibzmq_disconnect_msg: a ROUTER receives the message when a peer that
// connected has gone, behind all that it sent.
func TestLibzmq_disconnect_msg(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, sockets.NewRouter, sockets.Options{DisconnectMessage: []byte("D"), RecvHWM: 2})
	endpoint := router.LastEndpoint()
	must(t, router.Bind(ctx, "inproc://"+t.Name()))
	for _, endpoint := range []string{endpoint, router.LastEndpoint()} {
		for range 3 {
			dealer := dialled(t, sockets.NewDealer, sockets.Options{Identity: []byte("me")}, endpoint)
			must(t, dealer.Send(ctx, []byte("H")))
			wants(t, router, "me H")
			must(t, dealer.Close())
			wants(t, router, "me D")
		}
	}
	// Though the queue is full.
	r := dialRaw(t, endpoint).Greet("DEALER", []byte("it"))
	r.Send(wire("1"), wire("2"))
	r.Sync()
	r.Conn.Close()
	eventually(t, "it is gone", func() bool { return len(router.Peers()) == 0 })
	wants(t, router, "it 1", "it 2", "it D")
	// Not for connections that the ROUTER made.
	endpoint, accept := listenRaw(t)
	seen := newEvents()
	other := dialled(t, sockets.NewRouter, quick(sockets.Options{DisconnectMessage: []byte("D"), Monitor: seen.Tell}), endpoint)
	accept().Greet("DEALER", []byte("it")).Conn.Close()
	seen.Await(t, sockets.EventDisconnected)
	r = accept().Greet("DEALER", []byte("it"))
	r.Send(wire("x"))
	wants(t, other, "it x")
}

// TestLibzmq_hiccup_msg: a DEALER receives the message when it has lost a
// connection that it made.
func TestLibzmq_hiccup_msg(t *testing.T) {
	t.Parallel()
	endpoint, accept := listenRaw(t)
	dealer := dialled(t, sockets.NewDealer, quick(sockets.Options{HiccupMessage: []byte("hiccup")}), endpoint)
	for range 3 {
		r := accept().Greet("ROUTER", nil)
		r.Send(slices.Concat(wire("W"), wire("x", "y")))
		wants(t, dealer, "W", "x y")
		r.Conn.Close()
		wants(t, dealer, "hiccup")
	}
	// Not for a connection that was never established, nor for one that came
	// in.
	accept().Conn.Close()
	r := accept().Greet("ROUTER", nil)
	r.Send(wire("W"))
	wants(t, dealer, "W")
	bound := bind(t, sockets.NewDealer, sockets.Options{HiccupMessage: []byte("hiccup")})
	seen := dialRaw(t, bound.LastEndpoint()).Greet("DEALER", nil)
	seen.Send(wire("1"))
	wants(t, bound, "1")
	seen.Conn.Close()
	eventually(t, "it is gone", func() bool { return len(bound.Peers()) == 0 })
	dialRaw(t, bound.LastEndpoint()).Greet("DEALER", nil).Send(wire("2"))
	wants(t, bound, "2")
}
