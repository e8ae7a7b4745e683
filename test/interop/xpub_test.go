package interop

import (
	"fmt"
	"testing"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

// wantNotices receives from an XPUB.
func wantNotices(t *testing.T, pub *sockets.XPub, want ...string) {
	t.Helper()
	ctx := timeLimit(t)
	for _, w := range want {
		m, err := pub.Recv(ctx)
		check(t, err)
		wantFrames(t, m, [][]byte{[]byte(w)})
	}
}

// TestInteropXPub has libzmq's SUB and XSUB subscribe at our XPUB.
func TestInteropXPub(t *testing.T) {
	t.Parallel()
	for _, who := range []side{weBind, theyBind} {
		t.Run(string(who), func(t *testing.T) {
			t.Parallel()
			ctx := timeLimit(t)
			pub := open(t, sockets.NewXPub, sockets.Options{})
			sub := linkTo(t, pub, who, "SUB")
			op := func(name, topic string) { sub.Call(interop.Op{"op": name, "topic": base64Of(topic)}, nil) }
			op("subscribe", "a")
			wantNotices(t, pub, "\x01a")
			op("subscribe", "a")
			op("subscribe", "b")
			wantNotices(t, pub, "\x01b")
			check(t, pub.Send(ctx, []byte("ab"), []byte("body")))
			wantDescribed(t, pythonReceives(sub, 1)[0], [][]byte{[]byte("ab"), []byte("body")})

			up := python(t, "XSUB", "--connect", bindAlso(t, pub))
			pythonSays(up, "\x01a") // not the first
			pythonSays(up, "own")
			pythonSays(up, "\x01c")
			wantNotices(t, pub, "own", "\x01c")
			op("unsubscribe", "a")
			op("unsubscribe", "a")
			op("unsubscribe", "b")
			wantNotices(t, pub, "\x00b") // the other still has a
			pythonSays(up, "\x00a")
			wantNotices(t, pub, "\x00a")
			up.Call(interop.Op{"op": "disconnect", "endpoint": pub.LastEndpoint()}, nil)
			wantNotices(t, pub, "\x00c")
		})
	}
}

// bindAlso gives a socket one more endpoint.
func bindAlso(t *testing.T, s socket) string {
	t.Helper()
	check(t, s.Bind(timeLimit(t), anyPort))
	return s.LastEndpoint()
}

// TestInteropXSubOurs subscribes at libzmq's XPUB with our XSUB, in both ways.
func TestInteropXSubOurs(t *testing.T) {
	t.Parallel()
	for _, who := range []side{weBind, theyBind} {
		t.Run(string(who), func(t *testing.T) {
			t.Parallel()
			ctx := timeLimit(t)
			sub := open(t, sockets.NewXSub, sockets.Options{})
			pub := linkTo(t, sub, who, "XPUB", "--option", "XPUB_VERBOSE=1")
			check(t, sub.WaitSubscribed(ctx))
			for _, m := range []string{"\x01a", "own", "\x01a", "\x00a", "\x01b", "\x00a", "\x00b"} {
				check(t, sub.Send(ctx, []byte(m)))
			}
			// Of the ends of a only the second was sent.
			wantTold(t, pub, "\x01a", "own", "\x01a", "\x01b", "\x00a", "\x00b")
			check(t, sub.Subscribe("c"))
			check(t, sub.Send(ctx, []byte("two"), []byte("frames")))
			wantTold(t, pub, "\x01c")
			wantDescribed(t, pythonReceives(pub, 1)[0], [][]byte{[]byte("two"), []byte("frames")})
			pythonSays(pub, "none", "x")
			pythonSays(pub, "cc", "y")
			m, err := sub.Recv(ctx)
			check(t, err)
			wantFrames(t, m, [][]byte{[]byte("cc"), []byte("y")})
		})
	}
}

// TestInteropForward puts our XSUB and XPUB between libzmq's PUB and SUB.
func TestInteropForward(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	up, down := open(t, sockets.NewXSub, sockets.Options{}), open(t, sockets.NewXPub, sockets.Options{})
	pub := linkTo(t, up, weBind, "XPUB")
	sub := linkTo(t, down, weBind, "SUB", "--subscribe", base64Of("a"))
	m, err := down.Recv(ctx)
	check(t, err)
	check(t, up.Send(ctx, m...))
	wantTold(t, pub, "\x01a")
	for i := range 10 {
		pythonSays(pub, "b", fmt.Sprint(i))
		pythonSays(pub, "a", fmt.Sprint(i))
		m, err := up.Recv(ctx)
		check(t, err)
		check(t, down.Send(ctx, m...))
		wantDescribed(t, pythonReceives(sub, 1)[0], [][]byte{[]byte("a"), []byte(fmt.Sprint(i))})
	}
}

// TestInteropInvert inverts the matching with libzmq at either end.
func TestInteropInvert(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	o := sockets.Options{InvertMatching: true}
	pub := open(t, sockets.NewXPub, o)
	theirSub := linkTo(t, pub, weBind, "SUB", "--option", "INVERT_MATCHING=1", "--subscribe", base64Of("a"))
	wantNotices(t, pub, "\x01a")
	check(t, pub.Send(ctx, []byte("ab")))
	check(t, pub.Send(ctx, []byte("b")))
	wantDescribed(t, pythonReceives(theirSub, 1)[0], [][]byte{[]byte("b")})

	sub := open(t, sockets.NewSub, o)
	theirPub := linkTo(t, sub, weBind, "XPUB", "--option", "INVERT_MATCHING=1")
	check(t, sub.Subscribe("a"))
	wantTold(t, theirPub, "\x01a")
	pythonSays(theirPub, "ab")
	pythonSays(theirPub, "b")
	m, err := sub.Recv(ctx)
	check(t, err)
	wantFrames(t, m, [][]byte{[]byte("b")})
}

// TestInteropWelcome welcomes libzmq's SUB.
func TestInteropWelcome(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	pub := open(t, sockets.NewPub, sockets.Options{WelcomeMessage: []byte("welcome")})
	sub := linkTo(t, pub, weBind, "SUB", "--subscribe", base64Of(""))
	check(t, pub.WaitSubscribers(ctx, "", 1))
	check(t, pub.Send(ctx, []byte("news")))
	got := pythonReceives(sub, 2)
	wantDescribed(t, got[0], [][]byte{[]byte("welcome")})
	wantDescribed(t, got[1], [][]byte{[]byte("news")})
}
