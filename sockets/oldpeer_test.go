package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"clustermap/zmtp"
)

// oldVersion is a version that a scripted peer plays.
type oldVersion string

const (
	version10        oldVersion = "1.0"
	version10Revised oldVersion = "1.0 with revision"
	version20        oldVersion = "2.0"
	version30        oldVersion = "3.0"
)

// hello is the bytes that the peer sends unasked, in the pieces in which libzmq of that
// version sends it: each once it has read so much of our greeting.
func (v oldVersion) hello(kind zmtp.SocketType, identity string) []string {
	signature := "\xff\x00\x00\x00\x00\x00\x00\x00" + string([]byte{byte(len(identity) + 1)}) + "\x7f"
	number := string([]byte{byte(kind)})
	switch v {
	case version10:
		return []string{v.message(identity)}
	case version10Revised:
		return []string{signature, "\x00" + number, v.message(identity)}
	case version20:
		return []string{signature, "\x01" + number, v.message(identity)}
	}
	g := string(greeting(0))
	r := ready(kind.String(), []byte(identity))
	return []string{g[:10], g[10:11], g[11:], string(r)}
}

// message is a message in the version's framing.
func (v oldVersion) message(frames ...string) string {
	var b []byte
	for i, f := range frames {
		more := byte(0)
		if i < len(frames)-1 {
			more = 1
		}
		switch {
		case (v == version20 || v == version30) && len(f) < 256:
			b = append(b, more, byte(len(f)))
		case v == version20 || v == version30:
			b = append(b, more|2, 0, 0, 0, 0, byte(len(f)>>24), byte(len(f)>>16), byte(len(f)>>8), byte(len(f)))
		case len(f) < 254:
			b = append(b, byte(len(f)+1), more)
		default:
			n := len(f) + 1
			b = append(b, 0xFF, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n), more)
		}
		b = append(b, f...)
	}
	return string(b)
}

// expected is all that a peer of the version is sent before any traffic, by a
// socket with the given identity.
func (v oldVersion) expected(kind zmtp.SocketType, identity string) string {
	signature := "\xff\x00\x00\x00\x00\x00\x00\x00" + string([]byte{byte(len(identity) + 1)}) + "\x7f"
	number := string([]byte{byte(kind)})
	switch v {
	case version10:
		return signature + identity
	case version10Revised, version20:
		return signature + "\x03" + number + v.message(identity)
	}
	g := string(greeting(1))
	properties := zmtp.AppendProperty(nil, "Socket-Type", []byte(kind.String()))
	if kind == zmtp.TypeDealer || kind == zmtp.TypeRouter || kind == zmtp.TypeReq {
		properties = zmtp.AppendProperty(properties, "Identity", []byte(identity))
	}
	return signature + g[10:] + string(zmtp.AppendCommand(nil, "READY", properties))
}

// expect reads and compares bytes.
func (r *raw) expect(what, want string) {
	r.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r.in, got); err != nil || string(got) != want {
		r.t.Fatalf("%s: %q (%v), want %q", what, got[:n], err, want)
	}
}

// slowly sends byte by byte.
func (r *raw) slowly(data string) {
	r.t.Helper()
	for i := range len(data) {
		r.send([]byte{data[i]})
	}
}

// oldCase is one version, one pair of types, and the side that binds.
type oldCase struct {
	version oldVersion
	binds   bool // we do
}

func oldCases() (all []oldCase) {
	for _, v := range []oldVersion{version10, version10Revised, version20, version30} {
		all = append(all, oldCase{v, true}, oldCase{v, false})
	}
	return all
}

func (c oldCase) String() string {
	if c.binds {
		return string(c.version) + ", we bind"
	}
	return string(c.version) + ", we connect"
}

// link joins our socket with a scripted peer and does the handshake, byte by
// byte and with every byte compared.
func (c oldCase) link(t *testing.T, s interface {
	Bind(context.Context, string) error
	Connect(string) error
	LastEndpoint() string
}, kind zmtp.SocketType, identity string, theirs zmtp.SocketType, theirIdentity string) *raw {
	t.Helper()
	var r *raw
	if c.binds {
		must(t, s.Bind(testContext(t), anyPort))
		r = dialRaw(t, s.LastEndpoint())
	} else {
		endpoint, accept := listenRaw(t)
		must(t, s.Connect(endpoint))
		r = accept()
	}
	want := c.version.expected(kind, identity)
	// A peer waits for as much as libzmq's of its version does before it goes
	// on: nothing, the signature, the byte behind it.
	waits := []int{0, 10, 1, len(want) - 11}
	read := 0
	for i, piece := range c.version.hello(theirs, theirIdentity) {
		if c.version != version10 {
			n := waits[i]
			if i == 3 {
				n = len(greeting(1)) - read // READY follows whole greetings
			}
			r.expect("greeting", want[read:read+n])
			read += n
		}
		r.slowly(piece)
	}
	r.expect("rest of the greeting", want[read:])
	return r
}

// long is a frame that needs the long form in every version.
var long = strings.Repeat("long", 100)

// TestOldDealerRouter: both ways, with and without identities.
func TestOldDealerRouter(t *testing.T) {
	t.Parallel()
	for _, c := range oldCases() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			router := open(t, NewRouter, Options{Linger: LingerNone})
			r := c.link(t, router, zmtp.TypeRouter, "", zmtp.TypeDealer, "peer")
			r.slowly(c.version.message("", "one") + c.version.message("two"))
			r.send([]byte(c.version.message(long, "x") + c.version.message("")))
			for _, want := range [][]string{{"peer", "", "one"}, {"peer", "two"}, {"peer", long, "x"}, {"peer", ""}} {
				m, err := router.Recv(ctx)
				must(t, err)
				if !slices.Equal(texts(m), want) {
					t.Errorf("%q, want %q", m, want)
				}
			}
			must(t, router.Send(ctx, []byte("peer"), nil, []byte("answer"), []byte(long)))
			must(t, router.Send(ctx, []byte("peer"), bytes.Repeat([]byte("o"), 254)))
			r.expect("answer", c.version.message("", "answer", long)+c.version.message(strings.Repeat("o", 254)))

			dealer := open(t, NewDealer, Options{Identity: []byte("me"), Linger: LingerNone})
			r = c.link(t, dealer, zmtp.TypeDealer, "me", zmtp.TypeRouter, "")
			must(t, dealer.Send(ctx, []byte("a"), []byte("b")))
			r.expect("message", c.version.message("a", "b"))
			r.slowly(c.version.message("c", long))
			m, err := dealer.Recv(ctx)
			must(t, err)
			if !slices.Equal(texts(m), []string{"c", long}) {
				t.Errorf("%q", m)
			}
		})
	}
}

// TestOldPublisher: the messages of our PUB to old subscribers. One without a signature
// gets everything, the others the topics that they subscribed to by messages.
func TestOldPublisher(t *testing.T) {
	t.Parallel()
	for _, c := range oldCases() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			pub := open(t, NewPub, Options{Linger: LingerNone})
			r := c.link(t, pub, zmtp.TypePub, "", zmtp.TypeSub, "")
			all := c.version == version10
			if !all {
				r.slowly(c.version.message("\x01A") + c.version.message("\x01"+long))
			}
			must(t, pub.WaitSubscribers(ctx, "A", 1))
			must(t, pub.WaitSubscribers(ctx, long, 1))
			must(t, pub.Send(ctx, []byte("B")))
			must(t, pub.Send(ctx, []byte("AB"), []byte("body")))
			must(t, pub.Send(ctx, []byte(long)))
			want := c.version.message("AB", "body") + c.version.message(long)
			if all {
				want = c.version.message("B") + want
			}
			r.expect("published", want)
			if all {
				return
			}
			r.slowly(c.version.message("\x00A"))
			eventually(t, "the end of a subscription", func() bool { return pub.Subscriptions() == 1 })
			must(t, pub.Send(ctx, []byte("A")))
			must(t, pub.Send(ctx, []byte(long+"er")))
			r.expect("published", c.version.message(long+"er"))
		})
	}
}

// TestOldSubscriber: the subscriptions that our SUB sends to old publishers, and its
// filtering of their messages.
func TestOldSubscriber(t *testing.T) {
	t.Parallel()
	for _, c := range oldCases() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			sub := open(t, NewSub, Options{Linger: LingerNone})
			must(t, sub.Subscribe("B"))
			must(t, sub.Subscribe("A"))
			r := c.link(t, sub, zmtp.TypeSub, "", zmtp.TypePub, "")
			r.expect("subscriptions", c.version.message("\x01A")+c.version.message("\x01B"))
			topic := strings.Repeat("t", 254) // 255 with the byte before it
			must(t, sub.Subscribe(topic))
			must(t, sub.Unsubscribe("B"))
			r.expect("a subscription and an end", c.version.message("\x01"+topic)+c.version.message("\x00B"))
			r.slowly(c.version.message("B", "no") + c.version.message("AB", "yes") + c.version.message(topic+"s", long))
			for _, want := range [][]string{{"AB", "yes"}, {topic + "s", long}} {
				m, err := sub.Recv(ctx)
				must(t, err)
				if !slices.Equal(texts(m), want) {
					t.Errorf("%q, want %q", m, want)
				}
			}
			if c.version != version30 {
				// It cannot be asked, and WaitSubscribed does not wait for its answer.
				must(t, sub.WaitSubscribed(ctx))
			}
		})
	}
}

// TestOldPushPull: one way each.
func TestOldPushPull(t *testing.T) {
	t.Parallel()
	for _, c := range oldCases() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			push := open(t, NewPush, Options{Linger: LingerNone})
			r := c.link(t, push, zmtp.TypePush, "", zmtp.TypePull, "")
			must(t, push.Send(ctx, []byte("a"), []byte(long)))
			r.expect("message", c.version.message("a", long))

			pull := open(t, NewPull, Options{Linger: LingerNone})
			r = c.link(t, pull, zmtp.TypePull, "", zmtp.TypePush, "")
			r.slowly(c.version.message("b", long))
			m, err := pull.Recv(ctx)
			must(t, err)
			if !slices.Equal(texts(m), []string{"b", long}) {
				t.Errorf("%q", m)
			}
		})
	}
}

// TestOldRefused: a socket that refuses old peers ends the connection, and its monitor
// reports why.
func TestOldRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		min     int
		version oldVersion
		fine    bool
	}{
		{1, version10, true}, {1, version20, true},
		{2, version10, false}, {2, version10Revised, false}, {2, version20, true}, {2, version30, true},
		{3, version10, false}, {3, version10Revised, false}, {3, version20, false}, {3, version30, true},
	} {
		seen := newEvents()
		router := bind(t, NewRouter, Options{Monitor: seen.tell, MinVersion: c.min, Linger: LingerNone})
		r := dialRaw(t, router.LastEndpoint())
		for _, piece := range c.version.hello(zmtp.TypeDealer, "") {
			if _, err := r.conn.Write([]byte(piece)); err != nil {
				break // refused already
			}
		}
		if c.fine {
			e := seen.await(t, EventHandshakeSucceeded)
			if e.Peer.RemoteAddr() == "" {
				t.Errorf("%+v", e)
			}
			continue
		}
		if e := seen.await(t, EventHandshakeFailed); !errors.Is(e.Err, zmtp.ErrVersion) || e.Failure() != FailureProtocol {
			t.Errorf("%d and %s: %+v", c.min, c.version, e)
		}
		r.ended()
	}
	for _, bad := range []int{-1, 4} {
		var option *OptionError
		if _, err := NewRouter(Options{MinVersion: bad}); !errors.As(err, &option) || option.Field != "MinVersion" {
			t.Errorf("%d: %v", bad, err)
		}
	}
}

// TestOldSecurity: a socket with another mechanism than NULL, or that authenticates its peers,
// does not let in one that is too old for it.
func TestOldSecurity(t *testing.T) {
	t.Parallel()
	all := func(context.Context, AuthRequest) (User, error) { return User{}, nil }
	for name, security := range map[string]Security{
		"PLAIN": {PlainServer: true, Authenticate: all}, "PLAIN client": {PlainUsername: "me"},
		"CURVE": {CurveServer: true, CurveSecretKey: zmtp.GenerateKeyPair().Secret}, "ZAP": {ZAPDomain: "domain"}, "authenticator": {Authenticate: all},
	} {
		for _, v := range []oldVersion{version10, version20} {
			seen := newEvents()
			router := bind(t, NewRouter, Options{Monitor: seen.tell, MinVersion: 1, Linger: LingerNone, Security: security})
			r := dialRaw(t, router.LastEndpoint())
			_, _ = r.conn.Write([]byte(strings.Join(v.hello(zmtp.TypeDealer, ""), ""))) // it may be refused already
			if e := seen.await(t, EventHandshakeFailed); !errors.Is(e.Err, zmtp.ErrVersion) {
				t.Errorf("%s, %s: %+v", name, v, e)
			}
			r.ended()
		}
	}
}

// TestOldReconnect: messages queued for one connection go out on the next, in that one's
// framing, and subscriptions are repeated.
func TestOldReconnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	dealer := open(t, NewDealer, quick(Options{Linger: LingerNone}))
	must(t, dealer.Connect(endpoint))
	for i, v := range []oldVersion{version20, version30, version10, version10Revised} {
		r := accept()
		for _, piece := range v.hello(zmtp.TypeRouter, "") {
			r.send([]byte(piece))
		}
		must(t, dealer.Send(ctx, fmt.Append(nil, i), []byte(long)))
		r.expect("greeting", v.expected(zmtp.TypeDealer, ""))
		r.expect("message", v.message(fmt.Sprint(i), long))
		r.conn.Close()
	}
}

// TestOldHostile: faults of old peers' traffic cost their own connection alone,
// and the good messages before them are there.
func TestOldHostile(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.tell, MaxMessageSize: 1 << 20})
	works := honest(t, router, "honest")
	works()
	seen.await(t, EventHandshakeSucceeded)
	for _, c := range []struct {
		name    string
		version oldVersion
		says    string
		want    error
	}{
		{"length 0", version10, "\x00", zmtp.ErrMalformed},
		{"long length 0", version10, "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrMalformed},
		{"2^62", version10, "\xff\x40\x00\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"2^63", version10, "\xff\x80\x00\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"2^64-1", version10Revised, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", zmtp.ErrTooLarge},
		{"above the limit", version10, "\xff\x00\x00\x00\x00\x00\x10\x00\x02\x00", zmtp.ErrTooLarge},
		{"frames above the limit", version10, strings.Repeat("\xfe\x01"+strings.Repeat("x", 253), 1<<20/254), zmtp.ErrTooLarge},
		{"too many frames", version10, strings.Repeat("\x01\x01", zmtp.DefaultMaxFrames+1), zmtp.ErrTooLarge},
		{"command", version20, "\x04\x07\x04PING\x00\x00", zmtp.ErrMalformed},
		{"2^62", version20, "\x02\x40\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"2^63", version20, "\x02\x80\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"frames above the limit", version20, strings.Repeat("\x01\xff"+strings.Repeat("x", 255), 1<<20/255), zmtp.ErrTooLarge},
		{"end in a frame", version10, "\x05\x00a", io.EOF},
		{"end in a header", version20, "\x02\x00", io.EOF},
	} {
		r := dialRaw(t, router.LastEndpoint())
		r.send([]byte(strings.Join(c.version.hello(zmtp.TypeDealer, "hostile"), "")))
		// libzmq's order is kept to by others; here all comes at once.
		r.send([]byte(c.version.message("good")))
		if _, err := r.conn.Write([]byte(c.says)); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Fatal(err)
		}
		if errors.Is(c.want, io.EOF) {
			must(t, r.conn.(*net.TCPConn).CloseWrite())
		}
		e := seen.await(t, EventDisconnected)
		var peer *PeerError
		if !errors.Is(e.Err, c.want) || !errors.As(e.Err, &peer) {
			t.Errorf("%s, %s: %+v, want %v", c.version, c.name, e, c.want)
		}
		m, err := router.Recv(ctx)
		must(t, err)
		if !slices.Equal(texts(m), []string{"hostile", "good"}) {
			t.Errorf("%s, %s: %q", c.version, c.name, m)
		}
		r.ended()
		works()
	}
}

// TestOldHostileHandshake: an old peer that stops in its handshake does not hold up
// others and is ended in time, like any other.
func TestOldHostileHandshake(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.tell, MaxHandshakes: 4})
	works := honest(t, router, "honest")
	works()
	var all []*raw
	for _, says := range []string{"\x05", "\x05\x00pe", "\xff\x00\x00\x00\x00\x00\x00\x00\x05\x00", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x00\x05",
		"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00\x04pee", ""} {
		r := dialRaw(t, router.LastEndpoint())
		r.send([]byte(says))
		all = append(all, r)
	}
	for _, r := range all[:len(all)-4] {
		if e := seen.await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrHandshakeTimeout) {
			t.Errorf("%+v", e)
		}
		r.ended()
	}
	works()
}

// TestOldXPub: the application is told of the subscription that an old
// subscriber is taken to have made, and of its end.
func TestOldXPub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	xpub := open(t, NewXPub, Options{Linger: LingerNone})
	r := oldCase{version10, true}.link(t, xpub, zmtp.TypeXPub, "", zmtp.TypeSub, "")
	for _, want := range []string{"\x01", "\x00"} {
		m, err := xpub.Recv(ctx)
		must(t, err)
		if !slices.Equal(texts(m), []string{want}) {
			t.Errorf("%q, want %q", m, want)
		}
		if want == "\x01" {
			must(t, xpub.Send(ctx, []byte("anything")))
			r.expect("published", version10.message("anything"))
		}
		r.conn.Close()
	}
}
