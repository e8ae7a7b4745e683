package libzmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"clustermap/internal/sockettest"
	"clustermap/sockets"
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
			router := open(t, sockets.NewRouter, sockets.Options{Linger: sockets.LingerNone})
			r := c.Join(t, router, zmtp.TypeRouter, "", zmtp.TypeDealer, "peer")
			r.Slowly(c.Version.Message("", "one") + c.Version.Message("two"))
			r.Send([]byte(c.Version.Message(long, "x") + c.Version.Message("")))
			for _, want := range [][]string{{"peer", "", "one"}, {"peer", "two"}, {"peer", long, "x"}, {"peer", ""}} {
				wants(t, router, strings.Join(want, " "))
			}
			must(t, router.Send(ctx, []byte("peer"), nil, []byte("answer"), []byte(long)))
			must(t, router.Send(ctx, []byte("peer"), bytes.Repeat([]byte("o"), 254)))
			r.Wants(c.Version.Message("", "answer", long) + c.Version.Message(strings.Repeat("o", 254)))

			dealer := open(t, sockets.NewDealer, sockets.Options{Identity: []byte("me"), Linger: sockets.LingerNone})
			r = c.Join(t, dealer, zmtp.TypeDealer, "me", zmtp.TypeRouter, "")
			must(t, dealer.Send(ctx, []byte("a"), []byte("b")))
			r.Wants(c.Version.Message("a", "b"))
			r.Slowly(c.Version.Message("c", long))
			wants(t, dealer, "c "+long)
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
			pub := open(t, sockets.NewPub, sockets.Options{Linger: sockets.LingerNone})
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
			sub := open(t, sockets.NewSub, sockets.Options{Linger: sockets.LingerNone})
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
				wants(t, sub, strings.Join(want, " "))
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
			push := open(t, sockets.NewPush, sockets.Options{Linger: sockets.LingerNone})
			r := c.Join(t, push, zmtp.TypePush, "", zmtp.TypePull, "")
			must(t, push.Send(ctx, []byte("a"), []byte(long)))
			r.Wants(c.Version.Message("a", long))

			pull := open(t, sockets.NewPull, sockets.Options{Linger: sockets.LingerNone})
			r = c.Join(t, pull, zmtp.TypePull, "", zmtp.TypePush, "")
			r.Slowly(c.Version.Message("b", long))
			wants(t, pull, "b "+long)
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
		router := bind(t, sockets.NewRouter, sockets.Options{Monitor: seen.Tell, MinVersion: c.min, Linger: sockets.LingerNone})
		r := dialRaw(t, router.LastEndpoint())
		for _, piece := range c.version.Hello(zmtp.TypeDealer, "") {
			if _, err := r.Conn.Write([]byte(piece)); err != nil {
				break // refused already
			}
		}
		if c.fine {
			e := seen.Await(t, sockets.EventHandshakeSucceeded)
			if e.Peer.RemoteAddr() == "" {
				t.Errorf("%+v", e)
			}
			continue
		}
		if e := seen.Await(t, sockets.EventHandshakeFailed); !errors.Is(e.Err, zmtp.ErrVersion) || e.Failure() != sockets.FailureProtocol {
			t.Errorf("%d and %s: %+v", c.min, c.version, e)
		}
		r.Ended()
	}
	for _, bad := range []int{-1, 4} {
		var option *sockets.OptionError
		if _, err := sockets.NewRouter(sockets.Options{MinVersion: bad}); !errors.As(err, &option) || option.Field != "MinVersion" {
			t.Errorf("%d: %v", bad, err)
		}
	}
}

// TestOldSecurity: a socket with another mechanism than NULL, or that authenticates its peers,
// does not let in one that is too old for it.
func TestOldSecurity(t *testing.T) {
	t.Parallel()
	all := func(context.Context, sockets.AuthRequest) (sockets.User, error) { return sockets.User{}, nil }
	for name, security := range map[string]sockets.Security{
		"PLAIN": {PlainServer: true, Authenticate: all}, "PLAIN client": {PlainUsername: "me"},
		"CURVE": {CurveServer: true, CurveSecretKey: zmtp.GenerateKeyPair().Secret}, "ZAP": {ZAPDomain: "domain"}, "authenticator": {Authenticate: all},
	} {
		for _, v := range []sockettest.Version{sockettest.ZMTP10, sockettest.ZMTP20} {
			seen := newEvents()
			router := bind(t, sockets.NewRouter, sockets.Options{Monitor: seen.Tell, MinVersion: 1, Linger: sockets.LingerNone, Security: security})
			r := dialRaw(t, router.LastEndpoint())
			_, _ = r.Conn.Write([]byte(strings.Join(v.Hello(zmtp.TypeDealer, ""), ""))) // it may be refused already
			if e := seen.Await(t, sockets.EventHandshakeFailed); !errors.Is(e.Err, zmtp.ErrVersion) {
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
	dealer := open(t, sockets.NewDealer, quick(sockets.Options{Linger: sockets.LingerNone}))
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

// TestOldXPub: the application is told of the subscription that an old
// subscriber is taken to have made, and of its end.
func TestOldXPub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	xpub := open(t, sockets.NewXPub, sockets.Options{Linger: sockets.LingerNone})
	r := sockettest.Link{Version: sockettest.ZMTP10, Binds: true}.Join(t, xpub, zmtp.TypeXPub, "", zmtp.TypeSub, "")
	for _, want := range []string{"\x01", "\x00"} {
		wants(t, xpub, want)
		if want == "\x01" {
			must(t, xpub.Send(ctx, []byte("anything")))
			r.Wants(sockettest.ZMTP10.Message("anything"))
		}
		r.Conn.Close()
	}
}
