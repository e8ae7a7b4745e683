package sockets

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/engine"
	"clustermap/internal/hooks"
	"clustermap/internal/link"
	"clustermap/zmtp"
)

// persistent returns a DEALER that says "x" on each of its connections. The first may
// be given up after the DEALER's side of the handshake, and before the other side's.
func persistent(t testing.TB, o Options) (dealer *Dealer) {
	t.Helper()
	o.Monitor = func(e Event) {
		if e.Kind == EventHandshakeSucceeded {
			_ = dealer.TrySend([]byte("x")) // it may be closed
		}
	}
	dealer = open(t, NewDealer, quick(o))
	return dealer
}

// honest is a correct client, which other peers must not affect.
func honest(t testing.TB, router *Router, name string) func() {
	t.Helper()
	ctx := testContext(t)
	dealer := open(t, NewDealer, Options{Identity: []byte(name)})
	must(t, dealer.Connect(router.LastEndpoint()))
	n := 0
	return func() {
		t.Helper()
		n++
		must(t, dealer.Send(ctx, fmt.Append(nil, n)))
		for {
			m, err := router.Recv(ctx)
			must(t, err)
			if string(m[0]) != name {
				continue // messages that a hostile peer sent before its fault
			}
			must(t, router.Send(ctx, m...))
			break
		}
		m, err := dealer.Recv(ctx)
		must(t, err)
		if string(m[0]) != fmt.Sprint(n) {
			t.Fatalf("%q instead of %d", m, n)
		}
	}
}

// TestHostileHandshake: each of these ends only its own connection, with a typed error
// for the monitor.
func TestHostileHandshake(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	works := honest(t, router, "honest")
	works()
	seen.Await(t, EventHandshakeSucceeded)
	g := greeting(1)
	patch := func(at int, b byte) []byte { p := bytes.Clone(g); p[at] = b; return p }
	property := func(name, value string) []byte { return zmtp.AppendProperty(nil, name, []byte(value)) }
	readyOf := func(properties ...[]byte) []byte {
		return zmtp.AppendCommand(nil, "READY", slices.Concat(properties...))
	}
	dealer := property("Socket-Type", "DEALER")
	huge := []byte{zmtp.FlagCommand | zmtp.FlagLong, 0x40, 0, 0, 0, 0, 0, 0, 0}
	for _, c := range []struct {
		name string
		says []byte
		want error
	}{
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), zmtp.ErrVersion},
		{"TLS", []byte{0x16, 0x03, 0x01, 0x02, 0x00}, zmtp.ErrVersion},
		{"zeros", make([]byte, 64), zmtp.ErrVersion},
		{"no signature", patch(9, 0x7E), zmtp.ErrVersion},
		{"ZMTP 1 and no such type", patch(10, 0)[:12], zmtp.ErrIncompatible},
		{"ZMTP 2 and a wrong type", patch(10, 1)[:12], zmtp.ErrIncompatible},
		{"ZMTP 1, identity of 2^63 bytes", []byte{0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 0}, zmtp.ErrVersion},
		{"ZMTP 1, identity of 256 bytes", []byte{0xFF, 0, 0, 0, 0, 0, 0, 1, 1, 0}, zmtp.ErrMalformed},
		{"ZMTP 2, identity of 2^62 bytes", append(patch(10, 1)[:11], 5, zmtp.FlagLong, 0x40, 0, 0, 0, 0, 0, 0, 0), zmtp.ErrMalformed},
		{"ZMTP 2, command for an identity", append(patch(10, 1)[:11], 5, zmtp.FlagCommand), zmtp.ErrMalformed},
		{"PLAIN", zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "PLAIN"}), zmtp.ErrMechanism},
		{"CURVE", zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "CURVE"}), zmtp.ErrMechanism},
		{"no mechanism", zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1}), zmtp.ErrMechanism},
		{"NULL with more", patch(16, 'X'), zmtp.ErrMechanism},
		{"wrong socket type", slices.Concat(g, readyOf(property("Socket-Type", "PUB"))), zmtp.ErrIncompatible},
		{"unknown socket type", slices.Concat(g, readyOf(property("Socket-Type", "dealer "))), zmtp.ErrIncompatible},
		{"empty socket type", slices.Concat(g, readyOf(property("Socket-Type", ""))), zmtp.ErrIncompatible},
		{"identity of 256 bytes", slices.Concat(g, readyOf(dealer, property("Identity", strings.Repeat("i", 256)))), zmtp.ErrMalformed},
		{"property cut short", slices.Concat(g, readyOf(dealer, []byte("\x08Iden"))), zmtp.ErrMalformed},
		{"value cut short", slices.Concat(g, readyOf(dealer, []byte("\x01X\x00\x00\x00\x05abcd"))), zmtp.ErrMalformed},
		{"value of 2^31", slices.Concat(g, readyOf(dealer, []byte("\x01X\x80\x00\x00\x00abcd"))), zmtp.ErrMalformed},
		{"property without a name", slices.Concat(g, readyOf(dealer, []byte{0, 0, 0, 0, 0})), zmtp.ErrMalformed},
		{"bad name of a property", slices.Concat(g, readyOf(dealer, property("a b", ""))), zmtp.ErrMalformed},
		{"message instead of READY", slices.Concat(g, wire("x")), zmtp.ErrMalformed},
		{"PING instead of READY", slices.Concat(g, zmtp.AppendPing(nil, 0, nil)), zmtp.ErrMalformed},
		{"READY with MORE", slices.Concat(g, []byte{zmtp.FlagCommand | zmtp.FlagMore, 6}, []byte("\x05READY")), zmtp.ErrMalformed},
		{"empty command", slices.Concat(g, []byte{zmtp.FlagCommand, 0}), zmtp.ErrMalformed},
		{"name cut short", slices.Concat(g, []byte{zmtp.FlagCommand, 3, 9, 'R', 'E'}), zmtp.ErrMalformed},
		{"ERROR", slices.Concat(g, zmtp.AppendError(nil, "no")), zmtp.ErrRefused},
		{"READY of 2^62 bytes", slices.Concat(g, huge), zmtp.ErrTooLarge},
		{"READY above the limit", slices.Concat(g, readyOf(dealer, property("X-Large", strings.Repeat("x", engine.MaxHandshakeCommand)))), zmtp.ErrTooLarge},
	} {
		for _, bytewise := range []bool{false, true} {
			r := dialRaw(t, router.LastEndpoint())
			if bytewise && len(c.says) < 200 {
				for _, b := range c.says {
					if _, err := r.Conn.Write([]byte{b}); err != nil {
						break // refused already
					}
				}
			} else {
				r.Send(c.says)
			}
			e := seen.Await(t, EventHandshakeFailed)
			var peer *PeerError
			var protocol *zmtp.ProtocolError
			if !errors.Is(e.Err, c.want) || !errors.As(e.Err, &peer) || !errors.As(e.Err, &protocol) ||
				peer.Remote != r.Conn.LocalAddr().String() || e.Remote != peer.Remote || e.Endpoint != router.LastEndpoint() {
				t.Errorf("%s: %+v, want %v", c.name, e, c.want)
			}
			r.Ended()
		}
		works()
	}
	// A peer that is told why: RFC 37 asks for an ERROR before the end.
	r := dialRaw(t, router.LastEndpoint())
	r.Send(g, ready("PUB", nil))
	r.Greeted()
	if name, data := r.Command(); name != "ERROR" || len(data) < 2 {
		t.Errorf("%s %q", name, data)
	}
	r.Ended()
	if n := seen.Count(EventHandshakeSucceeded); n != 1 {
		t.Errorf("%d handshakes succeeded", n)
	}
}

// TestHostileTraffic: the same for traffic after the handshake.
func TestHostileTraffic(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell, MaxMessageSize: 1 << 20})
	works := honest(t, router, "honest")
	works()
	garbage := make([]byte, 10_000)
	_, _ = rand.Read(garbage)
	garbage[0] = zmtp.FlagCommand | zmtp.FlagMore
	size := func(flags byte, top byte) []byte { return []byte{flags, top, 0, 0, 0, 0, 0, 0, 0} }
	for _, c := range []struct {
		name string
		says []byte
		want error
	}{
		{"garbage", garbage, zmtp.ErrMalformed},
		{"command with MORE", []byte{zmtp.FlagCommand | zmtp.FlagMore, 1, 'x'}, zmtp.ErrMalformed},
		{"command without a name", []byte{zmtp.FlagCommand, 1, 0}, zmtp.ErrMalformed},
		{"empty command", []byte{zmtp.FlagCommand, 0}, zmtp.ErrMalformed},
		{"PING without ttl", zmtp.AppendCommand(nil, "PING", []byte{0}), zmtp.ErrMalformed},
		{"a frame of 2^62", size(zmtp.FlagLong, 0x40), zmtp.ErrTooLarge},
		{"a frame of 2^63", size(zmtp.FlagLong, 0x80), zmtp.ErrTooLarge},
		{"a frame of 2^64-1", []byte{zmtp.FlagLong, 255, 255, 255, 255, 255, 255, 255, 255}, zmtp.ErrTooLarge},
		{"a later frame of 2^62", slices.Concat(zmtp.AppendFrame(nil, []byte("x"), true), size(zmtp.FlagLong, 0x40)), zmtp.ErrTooLarge},
		{"a command of 2^62", size(zmtp.FlagCommand|zmtp.FlagLong, 0x40), zmtp.ErrTooLarge},
		{"a frame above the limit", zmtp.AppendHeader(nil, 0, 1<<20), zmtp.ErrTooLarge},
		{"frames above the limit", append(bytes.Repeat(zmtp.AppendFrame(nil, make([]byte, 250), true), 1<<20/252), zmtp.AppendHeader(nil, 0, 250)...), zmtp.ErrTooLarge},
		{"a command above the limit", zmtp.AppendHeader(nil, zmtp.FlagCommand, zmtp.DefaultMaxCommand+1), zmtp.ErrTooLarge},
		{"too many frames", bytes.Repeat([]byte{zmtp.FlagMore, 0}, zmtp.DefaultMaxFrames+1), zmtp.ErrTooLarge},
		{"ERROR", zmtp.AppendError(nil, "bye"), zmtp.ErrRefused},
		{"end in a header", []byte{zmtp.FlagLong, 0, 0}, io.EOF},
		{"end in a frame", []byte{0, 9, 1}, io.EOF},
		{"end between frames", zmtp.AppendFrame(nil, []byte("half a message"), true), io.EOF},
	} {
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
		r.Send(wire("good"))
		r.Send(c.says)
		if errors.Is(c.want, io.EOF) {
			must(t, r.Conn.(*net.TCPConn).CloseWrite())
		}
		e := seen.Await(t, EventDisconnected)
		var peer *PeerError
		if !errors.Is(e.Err, c.want) || !errors.As(e.Err, &peer) || peer.Remote != r.Conn.LocalAddr().String() {
			t.Errorf("%s: %+v, want %v", c.name, e, c.want)
		}
		r.Ended()
		works()
	}
	// The good messages before the faults are there, and nothing else.
	if n := len(router.Peers()); n != 1 {
		t.Errorf("%d peers are left", n)
	}
}

// TestHostileHarmless: unusual but valid bytes do not end the connection.
func TestHostileHarmless(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("odd"))
	r.Send(zmtp.AppendSubscribe(nil, []byte("not a publisher")), zmtp.AppendCancel(nil, nil),
		zmtp.AppendCommand(nil, "JOIN", []byte("group")), zmtp.AppendPong(nil, []byte("no PING")),
		zmtp.AppendCommand(nil, "READY", nil), zmtp.AppendCommand(nil, strings.Repeat("N", 255), nil),
		zmtp.AppendPing(nil, 0, nil))
	r.Sync()
	r.Send(zmtp.AppendCommand(nil, "PING", append([]byte{0, 0}, "a context of more than sixteen bytes"...)))
	if name, data := r.Command(); name != "PONG" || data != "a context of mor" {
		t.Errorf("%s %q", name, data)
	}
	// Long headers of small sizes, reserved bits, empty frames, and heartbeats
	// in the middle of a message.
	r.Send([]byte{zmtp.FlagLong | zmtp.FlagMore, 0, 0, 0, 0, 0, 0, 0, 1, 'a'}, []byte{0xF0 | zmtp.FlagMore, 0},
		zmtp.AppendPing(nil, 0, []byte("within")), []byte{zmtp.FlagMore}, []byte{1}, []byte("b"),
		zmtp.AppendPing(nil, 0, []byte("again")), []byte{0, 1, 'c'})
	for _, want := range []string{"within", "again"} {
		if name, data := r.Command(); name != "PONG" || data != want {
			t.Errorf("%s %q, want %s", name, data, want)
		}
	}
	m, err := router.Recv(ctx)
	must(t, err)
	if fmt.Sprintf("%q", m) != `["odd" "a" "" "b" "c"]` {
		t.Errorf("%q", m)
	}
}

// TestHostileHalfOpen: silent and very slow connections, many more than MaxHandshakes,
// do not keep correct clients out.
func TestHostileHalfOpen(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	const limit = 20
	router := open(t, NewRouter, Options{MaxHandshakes: limit, Monitor: seen.Tell})
	router.core.Tuning.HandshakeGrace = 20 * time.Millisecond
	must(t, router.Bind(ctx, anyPort))
	stop := make(chan struct{})
	var attackers sync.WaitGroup
	defer attackers.Wait()
	defer close(stop)
	for i := range 5 {
		attackers.Go(func() {
			var mine []net.Conn
			defer func() {
				for _, c := range mine {
					c.Close()
				}
			}()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				c, err := net.Dial("tcp", strings.TrimPrefix(router.LastEndpoint(), "tcp://"))
				if err != nil {
					continue
				}
				if mine = append(mine, c); len(mine) > 2*limit {
					mine[0].Close()
					mine = mine[1:]
				}
				if i%2 == 0 { // byte by byte over all of its connections
					for k, c := range mine {
						_, _ = c.Write(greeting(1)[(n+k)%64:][:1])
					}
				}
			}
		})
	}
	for range 3 * limit { // now there are many
		if e := seen.Await(t, EventHandshakeFailed); e.Err == nil {
			t.Errorf("%+v", e)
		}
	}
	for i := range 20 {
		name := fmt.Sprint("honest", i)
		dealer := persistent(t, Options{Identity: []byte(name), Linger: LingerNone})
		must(t, dealer.Connect(router.LastEndpoint()))
		for {
			m, err := router.Recv(ctx)
			must(t, err)
			if string(m[0]) == name {
				break
			}
			if i == 0 || string(m[0]) != fmt.Sprint("honest", i-1) { // it says it on each connection
				t.Errorf("%q", m)
			}
		}
		must(t, dealer.Close())
	}
}

// TestHostilePings: a peer that sends PINGs without end and reads nothing.
func TestHostilePings(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell, SendBuffer: 64 << 10})
	works := honest(t, router, "honest")
	works()
	seen.Await(t, EventHandshakeSucceeded)
	r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", []byte("pings"))
	peer := seen.Await(t, EventHandshakeSucceeded).Peer
	flood := bytes.Repeat(zmtp.AppendPing(nil, 0, []byte("sixteen bytes!!")), 10_000)
	const maxPongs = 4 << 10
	queued := func() int { return peer.engine().Pipe().Out.Status().Head }
	// Until the kernel's buffers are full of answers, and then some more.
	for full := 0; full < 10; {
		r.Send(flood)
		n := queued()
		if n > maxPongs+100 {
			t.Fatalf("%d bytes of PONGs are queued", n)
		}
		if n > 0 {
			full++
		}
		works()
	}
	r.Sync() // once it reads, it gets answers
}

// TestHostileSubscriptions: a subscriber with too many topics, or too large
// ones, is disconnected, and takes its topics along.
func TestHostileSubscriptions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	pub := bind(t, NewPub, Options{MaxSubscriptions: 1000, Monitor: seen.Tell})
	sub := subscribed(t, Options{}, pub.LastEndpoint(), "honest")
	for name, subscription := range map[string]func(i int) []byte{
		"commands":     func(i int) []byte { return zmtp.AppendSubscribe(nil, fmt.Append(nil, "topic", i)) },
		"messages":     func(i int) []byte { return wire(fmt.Sprint("\x01topic", i)) },
		"large topics": func(i int) []byte { return zmtp.AppendSubscribe(nil, fmt.Append(nil, i, strings.Repeat("t", 60_000))) },
	} {
		r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
		for i := range 1000 {
			if _, err := r.Conn.Write(subscription(i)); err != nil {
				break
			}
		}
		if name != "large topics" { // of those fewer are allowed
			r.Sync()
			if n := pub.Subscriptions(); n != 1001 {
				t.Errorf("%s: %d topics", name, n)
			}
			r.Send(subscription(999)) // known already
			r.Sync()
			r.Send(subscription(1000))
		}
		if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrTooManySubscriptions) {
			t.Errorf("%s: %v", name, e.Err)
		}
		r.Ended()
		if n := pub.Subscriptions(); n != 1 {
			t.Errorf("%s: %d topics are left", name, n)
		}
	}
	must(t, pub.Send(ctx, []byte("honest")))
	received(t, sub, 1)
}

// TestSubscriberWithATooLongTopicIsDisconnected: at the limit of the publisher, not at
// that of messages.
func TestSubscriberWithATooLongTopicIsDisconnected(t *testing.T) {
	t.Parallel()
	const most = 255
	for name, make := range map[string]func(Options) (Socket, error){
		"PUB":  func(o Options) (Socket, error) { return NewPub(o) },
		"XPUB": func(o Options) (Socket, error) { return NewXPub(o) },
		"XPUB with XPubManual": func(o Options) (Socket, error) {
			o.XPubManual = true
			return NewXPub(o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := newEvents()
			pub := open(t, make, Options{MaxTopicSize: most, Monitor: seen.Tell})
			must(t, pub.Bind(testContext(t), anyPort))
			r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
			r.Send(zmtp.AppendSubscribe(nil, bytes.Repeat([]byte("t"), most)))
			r.Sync()
			r.Send(zmtp.AppendSubscribe(nil, bytes.Repeat([]byte("t"), most+1)))
			r.Ended()
			if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrTooLarge) {
				t.Error(e.Err)
			}
		})
	}
}

// TestHostileSubscriber: user messages flood a publisher that has no use for
// them; publishing goes on, and they are counted. One that is too large to be a
// subscription ends the connection.
func TestHostileSubscriber(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	pub := bind(t, NewPub, Options{Monitor: seen.Tell, OnlyFirstSubscribe: true})
	sub := subscribed(t, Options{}, pub.LastEndpoint(), "")
	seen.Await(t, EventHandshakeSucceeded)
	r := dialRaw(t, pub.LastEndpoint()).Greet("XSUB", nil)
	peer := seen.Await(t, EventHandshakeSucceeded).Peer
	flood := slices.Concat(bytes.Repeat(wire("user", "message"), 1000), wire(""), wire("", "\x01not a topic"))
	for range 20 {
		r.Send(flood)
		must(t, pub.Send(ctx, []byte("x")))
		received(t, sub, 1)
	}
	r.Sync()
	if n := peer.engine().Conn().Discarded.Load(); n != 20*1002 {
		t.Errorf("%d were discarded", n)
	}
	r.Send(zmtp.AppendHeader(nil, 0, maxSubscription))
	if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, zmtp.ErrTooLarge) {
		t.Errorf("%v", e.Err)
	}
}

// TestHostilePublisher: a publisher that sends many messages without a subscription
// does not fill the queue.
func TestHostilePublisher(t *testing.T) {
	t.Parallel()
	endpoint, accept := listenRaw(t)
	sub := open(t, NewSub, Options{RecvHWM: 10})
	must(t, sub.Subscribe("yes"))
	must(t, sub.Connect(endpoint))
	r := accept().Greet("XPUB", nil)
	r.Send(bytes.Repeat(wire("no", strings.Repeat("x", 1000)), 10_000), wire("yes"))
	wants(t, sub, "yes")
}

// used returns the memory in use.
func used() int64 {
	for range 3 { // the pools keep things over one collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestHostileMemory: many connections that each have sent a part of a message cost memory
// in proportion to the bytes that they sent, with any announced sizes. The test's own
// memory for them is counted as well.
func TestHostileMemory(t *testing.T) {
	connections := 200
	if testing.Short() {
		connections = 50
	}
	for _, c := range []struct {
		name  string
		says  []byte
		greet bool
		each  int64 // bytes a connection may cost
	}{
		{"silent in the handshake", nil, false, 40 << 10},
		{"most of a READY", slices.Concat(greeting(1), []byte{zmtp.FlagCommand | zmtp.FlagLong, 0, 0, 0, 0, 0, 0, 0x40, 0}, make([]byte, 16<<10-1)), false, 40<<10 + 3*16<<10},
		{"idle after traffic", bytes.Repeat(wire("", strings.Repeat("x", 1000)), 500), true, 40 << 10},
		{"idle after tiny messages", bytes.Repeat(wire(""), 100_000), true, 40 << 10},
		{"5000 of 200 million bytes", append([]byte{zmtp.FlagLong, 0, 0, 0, 0, 0x0B, 0xEB, 0xC2, 0}, make([]byte, 5000)...), true, 40<<10 + 8*5000},
		{"300 thousand of 200 million bytes", append([]byte{zmtp.FlagLong, 0, 0, 0, 0, 0x0B, 0xEB, 0xC2, 0}, make([]byte, 300_000)...), true, 40<<10 + 8*300_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := newEvents()
			// Delivered messages are dropped as they come.
			router, err := NewRouter(Options{Monitor: seen.Tell, Linger: LingerNone})
			must(t, err)
			hooks.Prepare(router, func(b *hooks.Batch) { b.SetSpans(nil) })
			defer router.Close()
			must(t, router.Bind(testContext(t), anyPort))
			before := used()
			var peers []*raw
			for range connections {
				r := dialRaw(t, router.LastEndpoint())
				if c.greet {
					r.Greet("DEALER", nil)
				}
				r.Send(c.says)
				if c.greet && c.each == 40<<10 {
					r.Sync()
				}
				peers = append(peers, r)
			}
			for range connections {
				seen.Await(t, EventAccepted)
			}
			if !c.greet || c.each != 40<<10 {
				eventually(t, "all bytes are received", func() bool {
					return unreceived(t, peers) == 0
				})
			}
			eventually(t, fmt.Sprintf("at most %d bytes a connection", c.each), func() bool {
				cost := (used() - before) / int64(connections)
				t.Logf("%d bytes a connection", cost)
				return cost <= c.each
			})
			for _, r := range peers {
				r.Conn.Close()
			}
		})
	}
}

// unreceived is how many bytes the peers' other sides have not confirmed yet. Confirmed
// bytes may still be in the other side's buffer; its reader is soon done with it.
func unreceived(t *testing.T, peers []*raw) (n int) {
	t.Helper()
	for _, r := range peers {
		var s link.Stream
		must(t, s.Init(r.Conn))
		n += s.Unconfirmed()
	}
	return n
}
