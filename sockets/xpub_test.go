package sockets

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/queue"
	"clustermap/internal/subscriber"
	"clustermap/zmtp"
)

// TestXPubForms: subscriptions come to the application in one form, in which
// ever they came, and in their order among messages and commands.
func TestXPubForms(t *testing.T) {
	t.Parallel()
	pub := bind(t, NewXPub, Options{})
	r := dialRaw(t, pub.LastEndpoint()).Greet("XSUB", nil)
	long := strings.Repeat("l", 300)
	r.Send(
		zmtp.AppendSubscribe(nil, []byte("a")), wire("\x01b"), wire("mine", "own"), zmtp.AppendSubscribe(nil, []byte(long)),
		zmtp.AppendSubscribe(nil, nil), zmtp.AppendCancel(nil, []byte("b")), wire("\x00a"), wire("last"),
		zmtp.AppendCommand(nil, "UNKNOWN", []byte("a")), zmtp.AppendCancel(nil, []byte(long)),
	)
	wants(t, pub, "\x01a", "\x01b", "mine own", "\x01"+long, "\x01", "\x00b", "\x00a", "last", "\x00"+long)
	r.Conn.Close()
	wants(t, pub, "\x00")
}

// TestXPubMixed: a message of the application's own frames and of
// subscriptions is taken apart.
func TestXPubMixed(t *testing.T) {
	t.Parallel()
	mixed := wire("\x01a", "one", "two", "\x01b", "\x01a", "three", "", "\x00a")
	t.Run("every frame", func(t *testing.T) {
		t.Parallel()
		pub := bind(t, NewXPub, Options{})
		dialRaw(t, pub.LastEndpoint()).Greet("XSUB", nil).Send(mixed, wire("x", "\x01c"))
		wants(t, pub, "\x01a", "one two", "\x01b", "three ", "\x00a", "x", "\x01c")
	})
	t.Run("only first", func(t *testing.T) {
		t.Parallel()
		pub := bind(t, NewXPub, Options{OnlyFirstSubscribe: true})
		dialRaw(t, pub.LastEndpoint()).Greet("XSUB", nil).Send(mixed, wire("x", "\x01c"))
		wants(t, pub, "\x01a", "one two", "\x01b", "three ", "\x00a", "x \x01c")
		if n := pub.Subscriptions(); n != 1 {
			t.Errorf("%d topics", n)
		}
	})
}

// TestXPubForeignCancel: a peer that ends a subscription it never had does not
// end others'.
func TestXPubForeignCancel(t *testing.T) {
	t.Parallel()
	pub := bind(t, NewXPub, Options{})
	honest := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
	honest.Send(zmtp.AppendSubscribe(nil, []byte("a")))
	wants(t, pub, "\x01a")
	other := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
	other.Send(zmtp.AppendCancel(nil, []byte("a")), zmtp.AppendCancel(nil, []byte("nobody's")))
	wants(t, pub, "\x00nobody's") // and not of a
	says(t, pub, "a")
	if m := honest.Message(); string(m[0]) != "a" {
		t.Errorf("%q", m)
	}
}

// TestXPubTotal: many peers come, change their minds, and go. A count of the reported
// subscriptions and cancellations is right in the end: they are reported in the order in
// which they took effect.
func TestXPubTotal(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewXPub, Options{RecvHWM: 10})
	const peers = 8
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range peers {
		r := dialRaw(t, pub.LastEndpoint()).Greet("XSUB", nil)
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			defer r.Conn.Close()
			for i := range 501 {
				topic := []byte{"abcdefgh"[rng.IntN(8)]}
				data := zmtp.AppendSubscribe(nil, topic)
				switch {
				case i == 500:
					data = wire("bye")
				case rng.IntN(2) == 0:
					data = zmtp.AppendCancel(nil, topic)
				}
				if _, err := r.Conn.Write(data); err != nil {
					t.Error(err)
				}
			}
		})
	}
	told := map[string]bool{}
	changes := 0
	for byes := 0; byes < peers || len(told) > 0; {
		m, err := pub.Recv(ctx)
		if err != nil {
			t.Fatalf("%v; left are %v", err, told)
		}
		switch topic := string(m[0][1:]); m[0][0] {
		case 1:
			if told[topic] {
				t.Fatalf("change %d: %q is subscribed to, which was so", changes, topic)
			}
			told[topic] = true
			changes++
		case 0:
			delete(told, topic)
		default:
			byes++
		}
	}
	if changes < 8 {
		t.Errorf("only %d changes", changes)
	}
	eventually(t, "no topic is left", func() bool { return pub.Subscriptions() == 0 })
}

// TestXPubBounded: an application that does not receive holds up its peers' messages, and
// the end of a peer still gets through.
func TestXPubBounded(t *testing.T) {
	t.Parallel()
	const limit, count = 100, 2000
	pub := bind(t, NewXPub, Options{RecvHWM: limit})
	r := dialRaw(t, pub.LastEndpoint()).Greet("XSUB", nil)
	wrote := make(chan error, 1)
	go func() {
		message := bytes.Repeat([]byte("m"), 5000)
		var err error
		for i := 0; i < count && err == nil; i++ {
			_, err = r.Conn.Write(zmtp.AppendMessage(nil, message))
		}
		wrote <- err
	}()
	eventually(t, "it is held up", func() bool {
		_, _, waiting := pub.core.In.Look(&pub.queue)
		return waiting > 0
	})
	size, _, _ := pub.core.In.Look(&pub.queue)
	n := size.Messages
	if n < limit || n > limit+subscriptionBurst {
		t.Errorf("%d messages are queued", n)
	}
	ctx := testContext(t)
	for i := range count {
		m, err := pub.Recv(ctx)
		must(t, err)
		if len(m) != 1 || len(m[0]) != 5000 {
			t.Fatalf("message %d is %d frames", i, len(m))
		}
	}
	must(t, <-wrote)
}

// TestXPubForgets: a peer with many topics goes, and all of them are told.
func TestXPubForgets(t *testing.T) {
	t.Parallel()
	const count = 3*256 + 7
	pub := bind(t, NewXPub, Options{RecvHWM: -1})
	r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
	var subscribe []byte
	var want []string
	for i := range count {
		topic := fmt.Sprintf("topic %05d", i)
		subscribe = zmtp.AppendSubscribe(subscribe, []byte(topic))
		want = append(want, topic)
	}
	r.Send(subscribe)
	for _, topic := range want {
		wants(t, pub, "\x01"+topic)
	}
	r.Conn.Close()
	for _, topic := range want {
		wants(t, pub, "\x00"+topic)
	}
	eventually(t, "no topic is left", func() bool { return pub.Subscriptions() == 0 })
}

// TestXPubManualPeer: subscriptions can be given to any peer that is there, and
// to no other.
func TestXPubManualPeer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewXPub, Options{XPubManual: true})
	if err := pub.Subscribe("x"); !errors.Is(err, ErrUnroutable) {
		t.Errorf("before anything was received: %v", err)
	}
	var peers []*Peer
	var raws []*raw
	var b Batch
	defer b.Release()
	for range 2 {
		r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
		r.Send(zmtp.AppendSubscribe(nil, []byte("asked")))
		must(t, pub.RecvBatch(ctx, &b))
		raws, peers = append(raws, r), append(peers, b.Peer())
	}
	must(t, pub.SubscribePeer(peers[0], "first"))
	must(t, pub.Subscribe("second"))
	must(t, pub.Subscribe("both"))
	must(t, pub.SubscribePeer(peers[0], "both"))
	must(t, pub.UnsubscribePeer(peers[0], "never"))
	says(t, pub, "asked", "first", "second", "both")
	for i, want := range []string{"first", "second"} {
		if m := raws[i].Message(); string(m[0]) != want {
			t.Errorf("peer %d got %q", i, m)
		}
		if m := raws[i].Message(); string(m[0]) != "both" {
			t.Errorf("peer %d got %q", i, m)
		}
	}
	raws[1].Conn.Close()
	wants(t, pub, "\x00asked")
	for _, err := range []error{pub.Subscribe("late"), pub.SubscribePeer(peers[1], "late"), pub.Unsubscribe("both")} {
		if !errors.Is(err, ErrUnroutable) {
			t.Errorf("to a peer that is gone: %v", err)
		}
	}
	if other := open(t, NewXPub, Options{XPubManual: true}); !errors.Is(other.SubscribePeer(peers[0], "x"), ErrUnroutable) {
		t.Error("another socket's peer")
	}
	if plain := open(t, NewXPub, Options{}); !errors.Is(plain.Subscribe("x"), ErrNotManual) || !errors.Is(plain.Unsubscribe("x"), ErrNotManual) {
		t.Error("without XPubManual")
	}
	eventually(t, "two topics are left", func() bool { return pub.Subscriptions() == 2 })
}

// TestXSubSend: the application's own messages go to every publisher, also one
// that is not there yet; without subscriptions nothing is sent again.
func TestXSubSend(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	sub := dialled(t, NewXSub, quick(Options{Linger: LingerNone}), endpoint)
	must(t, sub.Send(ctx, []byte("early"), []byte("own")))
	says(t, sub, "\x01a")
	accepted := bind(t, NewXPub, Options{})
	must(t, sub.Connect(accepted.LastEndpoint()))
	wants(t, accepted, "\x01a")
	late := accept().Greet("XPUB", nil)
	late.Wants("\x04\x0b\x09SUBSCRIBEa" + string(wire("early", "own")))
	says(t, sub, "to both")
	wants(t, accepted, "to both")
	late.Wants(string(wire("to both")))
	late.Conn.Close()
	accept().Greet("XPUB", nil).Wants("\x04\x0b\x09SUBSCRIBEa")
	if err := sub.Send(ctx, append([]byte{1}, make([]byte, subscriber.MaxTopic+1)...)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too long a topic: %v", err)
	}
	if n := sub.Subscriptions(); n != 1 {
		t.Errorf("%d topics", n)
	}
}

// TestXSubDrops: a publisher that takes nothing loses messages, not
// subscriptions.
func TestXSubDrops(t *testing.T) {
	t.Parallel()
	endpoint, accept := listenRaw(t)
	sub := dialled(t, NewXSub, quick(Options{SendHWM: 10, Linger: LingerNone}), endpoint)
	for range 25 {
		says(t, sub, "own")
	}
	if s := sub.Peers(); len(s) != 1 || s[0].Drops != 15 || s[0].QueuedMessages != 10 {
		t.Errorf("%+v", s)
	}
	for i := range 100 {
		says(t, sub, fmt.Sprintf("\x01%02d", i))
	}
	r := accept().Greet("PUB", nil)
	for i := range 100 {
		if name, topic := r.Command(); name != "SUBSCRIBE" || topic != fmt.Sprintf("%02d", i) {
			t.Fatalf("%s %q", name, topic)
		}
	}
	for range 10 {
		r.Wants(string(wire("own")))
	}
}

// TestXSubUnfiltered: an XSUB receives every message.
func TestXSubUnfiltered(t *testing.T) {
	t.Parallel()
	endpoint, accept := listenRaw(t)
	sub := dialled(t, NewXSub, Options{}, endpoint)
	r := accept().Greet("PUB", nil)
	r.Send(wire("anything", "at all"))
	wants(t, sub, "anything at all")
}

// TestInvertWire: SendWire and SendSpans invert too.
func TestInvertWire(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{InvertMatching: true})
	sub := dialled(t, NewSub, Options{InvertMatching: true}, pub.LastEndpoint())
	must(t, sub.Subscribe("a"))
	must(t, sub.WaitSubscribed(ctx))
	must(t, pub.WaitSubscribers(ctx, "b", 1))
	all := slices.Concat(wire("a", "1"), wire("b", "2"), wire("c", "3"), wire("ab", "4"), wire("b", "5"))
	must(t, pub.sendWire(ctx, all, 5, nil))
	wants(t, sub, "b 2", "c 3", "b 5")
	var spans []buf.Span
	for at := 0; at < len(all); {
		end := queue.MessageEnd(all, at)
		spans = append(spans, buf.Span{Start: uint32(at), End: uint32(end)})
		at = end
	}
	must(t, hooks.SendSpans(ctx, pub, all, spans, nil))
	wants(t, sub, "b 2", "c 3", "b 5")
	must(t, sub.Unsubscribe("a"))
	must(t, pub.WaitSubscribers(ctx, "a", 1))
	must(t, pub.sendWire(ctx, all, 5, nil))
	wants(t, sub, "a 1", "b 2", "c 3", "ab 4", "b 5")
}

// TestXPubInproc: subscriptions upstream and messages downstream, between two sockets of
// one program.
func TestXPubInproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := open(t, NewXPub, Options{RecvHWM: 3, WelcomeMessage: []byte("W")})
	must(t, pub.Bind(ctx, "inproc://"+t.Name()))
	sub := open(t, NewXSub, Options{})
	must(t, sub.Connect("inproc://"+t.Name()))
	must(t, sub.WaitSubscribed(ctx))
	var want []string
	for i := range 100 { // far more than are queued there
		topic := fmt.Sprint(i)
		says(t, sub, "\x01"+topic, "own "+topic)
		must(t, sub.Subscribe("s"+topic))
		want = append(want, "\x01"+topic, "own "+topic, "\x01s"+topic)
	}
	wants(t, pub, want...)
	says(t, pub, "x", "s50", "50")
	wants(t, sub, "W", "s50", "50")
	must(t, sub.Disconnect("inproc://"+t.Name()))
	for range 200 {
		m, err := pub.Recv(ctx)
		must(t, err)
		if m[0][0] != 0 {
			t.Fatalf("%q", m)
		}
	}
	eventually(t, "no topic is left", func() bool { return pub.Subscriptions() == 0 })
}

// TestHostileXPubComing: while the application receives nothing, peers that come
// and subscribe add nothing to a queue that is full, and once it receives, all
// of them are heard.
func TestHostileXPubComing(t *testing.T) {
	t.Parallel()
	const limit, peers, topics = 10, 8, 20
	ctx := testContext(t)
	pub := bind(t, NewXPub, Options{RecvHWM: limit})
	queued := func() (messages int, blocked bool) {
		size, _, waiting := pub.core.In.Look(&pub.queue)
		return size.Messages, waiting > 0
	}
	for i := range peers {
		var data []byte
		for j := range topics {
			data = zmtp.AppendSubscribe(data, fmt.Append(nil, i, " ", j))
		}
		r := dialRaw(t, pub.LastEndpoint())
		r.Send(slices.Concat(greeting(1), ready("SUB", nil), data))
		r.Greeted()
		if i == 0 {
			eventually(t, "the queue is full", func() bool { n, _ := queued(); return n >= limit })
		} else {
			eventually(t, "it waits", func() bool { _, blocked := queued(); return blocked })
		}
	}
	if n, _ := queued(); n > topics {
		t.Errorf("%d messages are queued", n)
	}
	for range peers * topics {
		m, err := pub.Recv(ctx)
		must(t, err)
		if m[0][0] != 1 {
			t.Fatalf("%q", m)
		}
	}
	if n := pub.Subscriptions(); n != peers*topics {
		t.Errorf("%d topics", n)
	}
}
