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

	"clustermap/internal/sockettest"
	"clustermap/zmtp"
)

// long is a frame that needs the long form in every version.
var long = strings.Repeat("long", 100)

// TestOldDealerRouter: both ways, with and without identities.
func TestOldDealerRouter(t *testing.T) {
	t.Parallel()
	for _, c := range sockettest.Links() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			router := open(t, NewRouter, Options{Linger: LingerNone})
			r := c.Join(t, router, zmtp.TypeRouter, "", zmtp.TypeDealer, "peer")
			r.Slowly(c.Version.Message("", "one") + c.Version.Message("two"))
			r.Send([]byte(c.Version.Message(long, "x") + c.Version.Message("")))
			for _, want := range [][]string{{"peer", "", "one"}, {"peer", "two"}, {"peer", long, "x"}, {"peer", ""}} {
				m, err := router.Recv(ctx)
				must(t, err)
				if !slices.Equal(texts(m), want) {
					t.Errorf("%q, want %q", m, want)
				}
			}
			must(t, router.Send(ctx, []byte("peer"), nil, []byte("answer"), []byte(long)))
			must(t, router.Send(ctx, []byte("peer"), bytes.Repeat([]byte("o"), 254)))
			r.Wants(c.Version.Message("", "answer", long) + c.Version.Message(strings.Repeat("o", 254)))

			dealer := open(t, NewDealer, Options{Identity: []byte("me"), Linger: LingerNone})
			r = c.Join(t, dealer, zmtp.TypeDealer, "me", zmtp.TypeRouter, "")
			must(t, dealer.Send(ctx, []byte("a"), []byte("b")))
			r.Wants(c.Version.Message("a", "b"))
			r.Slowly(c.Version.Message("c", long))
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
	for _, c := range sockettest.Links() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			pub := open(t, NewPub, Options{Linger: LingerNone})
			r := c.Join(t, pub, zmtp.TypePub, "", zmtp.TypeSub, "")
			all := c.Version == sockettest.ZMTP10
			if !all {
				r.Slowly(c.Version.Message("\x01A") + c.Version.Message("\x01"+long))
			}
			must(t, pub.WaitSubscribers(ctx, "A", 1))
			must(t, pub.WaitSubscribers(ctx, long, 1))
			must(t, pub.Send(ctx, []byte("B")))
			must(t, pub.Send(ctx, []byte("AB"), []byte("body")))
			must(t, pub.Send(ctx, []byte(long)))
			want := c.Version.Message("AB", "body") + c.Version.Message(long)
			if all {
				want = c.Version.Message("B") + want
			}
			r.Wants(want)
			if all {
				return
			}
			r.Slowly(c.Version.Message("\x00A"))
			eventually(t, "the end of a subscription", func() bool { return pub.Subscriptions() == 1 })
			must(t, pub.Send(ctx, []byte("A")))
			must(t, pub.Send(ctx, []byte(long+"er")))
			r.Wants(c.Version.Message(long + "er"))
		})
	}
}

// TestOldSubscriber: the subscriptions that our SUB sends to old publishers, and its
// filtering of their messages.
func TestOldSubscriber(t *testing.T) {
	t.Parallel()
	for _, c := range sockettest.Links() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			sub := open(t, NewSub, Options{Linger: LingerNone})
			must(t, sub.Subscribe("B"))
			must(t, sub.Subscribe("A"))
			r := c.Join(t, sub, zmtp.TypeSub, "", zmtp.TypePub, "")
			r.Wants(c.Version.Message("\x01A") + c.Version.Message("\x01B"))
			topic := strings.Repeat("t", 254) // 255 with the byte before it
			must(t, sub.Subscribe(topic))
			must(t, sub.Unsubscribe("B"))
			r.Wants(c.Version.Message("\x01"+topic) + c.Version.Message("\x00B"))
			r.Slowly(c.Version.Message("B", "no") + c.Version.Message("AB", "yes") + c.Version.Message(topic+"s", long))
			for _, want := range [][]string{{"AB", "yes"}, {topic + "s", long}} {
				m, err := sub.Recv(ctx)
				must(t, err)
				if !slices.Equal(texts(m), want) {
					t.Errorf("%q, want %q", m, want)
				}
			}
			if c.Version != sockettest.ZMTP30 {
				// It cannot be asked, and WaitSubscribed does not wait for its answer.
				must(t, sub.WaitSubscribed(ctx))
			}
		})
	}
}

// TestOldPushPull: one way each.
func TestOldPushPull(t *testing.T) {
	t.Parallel()
	for _, c := range sockettest.Links() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			push := open(t, NewPush, Options{Linger: LingerNone})
			r := c.Join(t, push, zmtp.TypePush, "", zmtp.TypePull, "")
			must(t, push.Send(ctx, []byte("a"), []byte(long)))
			r.Wants(c.Version.Message("a", long))

			pull := open(t, NewPull, Options{Linger: LingerNone})
			r = c.Join(t, pull, zmtp.TypePull, "", zmtp.TypePush, "")
			r.Slowly(c.Version.Message("b", long))
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
		version sockettest.Version
		fine    bool
	}{
		{1, sockettest.ZMTP10, true}, {1, sockettest.ZMTP20, true},
		{2, sockettest.ZMTP10, false}, {2, sockettest.ZMTP10Revised, false}, {2, sockettest.ZMTP20, true}, {2, sockettest.ZMTP30, true},
		{3, sockettest.ZMTP10, false}, {3, sockettest.ZMTP10Revised, false}, {3, sockettest.ZMTP20, false}, {3, sockettest.ZMTP30, true},
	} {
		seen := newEvents()
		router := bind(t, NewRouter, Options{Monitor: seen.Tell, MinVersion: c.min, Linger: LingerNone})
		r := dialRaw(t, router.LastEndpoint())
		for _, piece := range c.version.Hello(zmtp.TypeDealer, "") {
			if _, err := r.Conn.Write([]byte(piece)); err != nil {
				break // refused already
			}
		}
		if c.fine {
			e := seen.Await(t, EventHandshakeSucceeded)
			if e.Peer.RemoteAddr() == "" {
				t.Errorf("%+v", e)
			}
			continue
		}
		if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, zmtp.ErrVersion) || e.Failure() != FailureProtocol {
			t.Errorf("%d and %s: %+v", c.min, c.version, e)
		}
		r.Ended()
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
		for _, v := range []sockettest.Version{sockettest.ZMTP10, sockettest.ZMTP20} {
			seen := newEvents()
			router := bind(t, NewRouter, Options{Monitor: seen.Tell, MinVersion: 1, Linger: LingerNone, Security: security})
			r := dialRaw(t, router.LastEndpoint())
			_, _ = r.Conn.Write([]byte(strings.Join(v.Hello(zmtp.TypeDealer, ""), ""))) // it may be refused already
			if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, zmtp.ErrVersion) {
				t.Errorf("%s, %s: %+v", name, v, e)
			}
			r.Ended()
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
	for i, v := range []sockettest.Version{sockettest.ZMTP20, sockettest.ZMTP30, sockettest.ZMTP10, sockettest.ZMTP10Revised} {
		r := accept()
		for _, piece := range v.Hello(zmtp.TypeRouter, "") {
			r.Send([]byte(piece))
		}
		must(t, dealer.Send(ctx, fmt.Append(nil, i), []byte(long)))
		r.Wants(v.Expected(zmtp.TypeDealer, ""))
		r.Wants(v.Message(fmt.Sprint(i), long))
		r.Conn.Close()
	}
}

// TestOldHostile: faults of old peers' traffic cost their own connection alone,
// and the good messages before them are there.
func TestOldHostile(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell, MaxMessageSize: 1 << 20})
	works := honest(t, router, "honest")
	works()
	seen.Await(t, EventHandshakeSucceeded)
	for _, c := range []struct {
		name    string
		version sockettest.Version
		says    string
		want    error
	}{
		{"length 0", sockettest.ZMTP10, "\x00", zmtp.ErrMalformed},
		{"long length 0", sockettest.ZMTP10, "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrMalformed},
		{"2^62", sockettest.ZMTP10, "\xff\x40\x00\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"2^63", sockettest.ZMTP10, "\xff\x80\x00\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"2^64-1", sockettest.ZMTP10Revised, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", zmtp.ErrTooLarge},
		{"above the limit", sockettest.ZMTP10, "\xff\x00\x00\x00\x00\x00\x10\x00\x02\x00", zmtp.ErrTooLarge},
		{"frames above the limit", sockettest.ZMTP10, strings.Repeat("\xfe\x01"+strings.Repeat("x", 253), 1<<20/254), zmtp.ErrTooLarge},
		{"too many frames", sockettest.ZMTP10, strings.Repeat("\x01\x01", zmtp.DefaultMaxFrames+1), zmtp.ErrTooLarge},
		{"command", sockettest.ZMTP20, "\x04\x07\x04PING\x00\x00", zmtp.ErrMalformed},
		{"2^62", sockettest.ZMTP20, "\x02\x40\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"2^63", sockettest.ZMTP20, "\x02\x80\x00\x00\x00\x00\x00\x00\x00", zmtp.ErrTooLarge},
		{"frames above the limit", sockettest.ZMTP20, strings.Repeat("\x01\xff"+strings.Repeat("x", 255), 1<<20/255), zmtp.ErrTooLarge},
		{"end in a frame", sockettest.ZMTP10, "\x05\x00a", io.EOF},
		{"end in a header", sockettest.ZMTP20, "\x02\x00", io.EOF},
	} {
		r := dialRaw(t, router.LastEndpoint())
		r.Send([]byte(strings.Join(c.version.Hello(zmtp.TypeDealer, "hostile"), "")))
		// libzmq's order is kept to by others; here all comes at once.
		r.Send([]byte(c.version.Message("good")))
		if _, err := r.Conn.Write([]byte(c.says)); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Fatal(err)
		}
		if errors.Is(c.want, io.EOF) {
			must(t, r.Conn.(*net.TCPConn).CloseWrite())
		}
		e := seen.Await(t, EventDisconnected)
		var peer *PeerError
		if !errors.Is(e.Err, c.want) || !errors.As(e.Err, &peer) {
			t.Errorf("%s, %s: %+v, want %v", c.version, c.name, e, c.want)
		}
		m, err := router.Recv(ctx)
		must(t, err)
		if !slices.Equal(texts(m), []string{"hostile", "good"}) {
			t.Errorf("%s, %s: %q", c.version, c.name, m)
		}
		r.Ended()
		works()
	}
}

// TestOldHostileHandshake: an old peer that stops in its handshake does not hold up
// others and is ended in time, like any other.
func TestOldHostileHandshake(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell, MaxHandshakes: 4})
	works := honest(t, router, "honest")
	works()
	var all []*raw
	for _, says := range []string{"\x05", "\x05\x00pe", "\xff\x00\x00\x00\x00\x00\x00\x00\x05\x00", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x00\x05",
		"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00\x04pee", ""} {
		r := dialRaw(t, router.LastEndpoint())
		r.Send([]byte(says))
		all = append(all, r)
	}
	for _, r := range all[:len(all)-4] {
		if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrHandshakeTimeout) {
			t.Errorf("%+v", e)
		}
		r.Ended()
	}
	works()
}

// TestOldXPub: the application is told of the subscription that an old
// subscriber is taken to have made, and of its end.
func TestOldXPub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	xpub := open(t, NewXPub, Options{Linger: LingerNone})
	r := sockettest.Link{Version: sockettest.ZMTP10, Binds: true}.Join(t, xpub, zmtp.TypeXPub, "", zmtp.TypeSub, "")
	for _, want := range []string{"\x01", "\x00"} {
		m, err := xpub.Recv(ctx)
		must(t, err)
		if !slices.Equal(texts(m), []string{want}) {
			t.Errorf("%q, want %q", m, want)
		}
		if want == "\x01" {
			must(t, xpub.Send(ctx, []byte("anything")))
			r.Wants(sockettest.ZMTP10.Message("anything"))
		}
		r.Conn.Close()
	}
}
