package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

// restart starts a killed program again at the same endpoint.
func restart(t *testing.T, p *interop.Process, kind string, args ...string) *interop.Process {
	t.Helper()
	return python(t, kind, append(args, "--bind", p.Endpoint)...)
}

func TestInteropRestartedRouter(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	events := newEvents()
	dealer := open(t, sockets.NewDealer, sockets.Options{Identity: []byte("me"), Monitor: events.Tell})
	router := linkTo(t, dealer, theyBind, "ROUTER")
	for range 3 {
		check(t, dealer.Send(ctx, []byte("hello")))
		wantDescribed(t, pythonReceives(router, 1)[0], [][]byte{[]byte("me"), []byte("hello")})
		pythonSays(router, "me", "answer")
		m, err := dealer.Recv(ctx)
		check(t, err)
		wantFrames(t, m, [][]byte{[]byte("answer")})

		router.Kill()
		events.Await(t, sockets.EventDisconnected)
		router = restart(t, router, "ROUTER")
	}
}

func TestInteropRestartedPub(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	sub := open(t, sockets.NewSub, sockets.Options{})
	check(t, sub.Subscribe("b"))
	check(t, sub.Subscribe("a"))
	check(t, sub.Subscribe("a"))
	pub := linkTo(t, sub, theyBind, "XPUB")
	for range 3 {
		// Every topic is there again, in any order.
		told := map[string]bool{}
		for _, m := range pythonReceives(pub, 2) {
			told[string(m[0].Bytes)] = true
		}
		if !told["\x01a"] || !told["\x01b"] {
			t.Fatalf("libzmq was told %v", told)
		}
		pythonSays(pub, "c", "no")
		pythonSays(pub, "a", "yes")
		m, err := sub.Recv(ctx)
		check(t, err)
		wantFrames(t, m, [][]byte{[]byte("a"), []byte("yes")})

		pub.Kill()
		pub = restart(t, pub, "XPUB")
	}
}

func TestInteropRestartedDealer(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	events := newEvents()
	router := open(t, sockets.NewRouter, sockets.Options{Mandatory: true, Monitor: events.Tell})
	check(t, router.Bind(ctx, anyPort))
	for range 3 {
		dealer := python(t, "DEALER", "--identity", base64Of("it"), "--connect", router.LastEndpoint())
		pythonSays(dealer, "hello")
		m, err := router.Recv(ctx)
		check(t, err)
		wantFrames(t, m, [][]byte{[]byte("it"), []byte("hello")})
		check(t, router.Send(ctx, []byte("it"), []byte("answer")))
		wantDescribed(t, pythonReceives(dealer, 1)[0], [][]byte{[]byte("answer")})

		dealer.Kill()
		events.Await(t, sockets.EventDisconnected)
		if err := router.Send(ctx, []byte("it"), []byte("lost")); !errors.Is(err, sockets.ErrUnroutable) {
			t.Fatalf("to a peer that is gone: %v, want ErrUnroutable", err)
		}
	}
}

func TestInteropRestartedSub(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	events := newEvents()
	pub := open(t, sockets.NewPub, sockets.Options{Monitor: events.Tell})
	check(t, pub.Bind(ctx, anyPort))
	for range 3 {
		sub := python(t, "SUB", "--subscribe", base64Of("a"), "--connect", pub.LastEndpoint())
		check(t, pub.WaitSubscribers(ctx, "a", 1))
		check(t, pub.Send(ctx, []byte("b")))
		check(t, pub.Send(ctx, []byte("ab")))
		wantDescribed(t, pythonReceives(sub, 1)[0], [][]byte{[]byte("ab")})
		sub.Kill()
		events.Await(t, sockets.EventDisconnected)
		if n := pub.Subscriptions(); n != 0 {
			t.Fatalf("a subscriber that is gone left %d topics", n)
		}
	}
}

// TestInteropWeRestart has libzmq connect again to a socket that took the place
// of another, with its identity and its subscriptions.
func TestInteropWeRestart(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	interop.Require(t)
	endpoints := map[string]string{"router": ownPort(t), "pub": ownPort(t)}
	var dealer, sub *interop.Process
	for range 3 {
		router, err := sockets.NewRouter(sockets.Options{Linger: sockets.LingerNone})
		check(t, err)
		defer router.Close()
		pub, err := sockets.NewPub(sockets.Options{Linger: sockets.LingerNone})
		check(t, err)
		defer pub.Close()
		check(t, router.Bind(ctx, endpoints["router"]))
		check(t, pub.Bind(ctx, endpoints["pub"]))
		if dealer == nil {
			dealer = python(t, "DEALER", "--identity", base64Of("it"), "--connect", router.LastEndpoint())
			sub = python(t, "SUB", "--subscribe", base64Of("a"), "--connect", pub.LastEndpoint())
		}
		dealer.Call(interop.Op{"op": "wait_event", "name": "HANDSHAKE_SUCCEEDED"}, nil)
		pythonSays(dealer, "hello")
		m, err := router.Recv(ctx)
		check(t, err)
		wantFrames(t, m, [][]byte{[]byte("it"), []byte("hello")})

		check(t, pub.WaitSubscribers(ctx, "a", 1))
		check(t, pub.Send(ctx, []byte("a"), []byte("yes")))
		wantDescribed(t, pythonReceives(sub, 1)[0], [][]byte{[]byte("a"), []byte("yes")})
		check(t, router.Close())
		check(t, pub.Close())
		// Not before it has seen the end, else it would wait for the old link.
		dealer.Call(interop.Op{"op": "wait_event", "name": "DISCONNECTED"}, nil)
		sub.Call(interop.Op{"op": "wait_event", "name": "DISCONNECTED"}, nil)
	}
}

// stopped is the size of a message for a frozen subscriber. It is large, so
// that the kernel's buffers are soon full.
const stopped = 64 << 10

// numbered is the body of message n.
func numbered(n int) []byte {
	body := make([]byte, stopped)
	binary.BigEndian.PutUint64(body, uint64(n))
	return body
}

// frozen connects a healthy subscriber of ours and one of libzmq to pub, freezes
// the latter, and returns both.
func frozen(t *testing.T, pub *sockets.Pub) (*sockets.Sub, *interop.Process) {
	t.Helper()
	ctx := timeLimit(t)
	healthy := open(t, sockets.NewSub, sockets.Options{})
	check(t, healthy.Subscribe("n"))
	slow := linkTo(t, pub, weBind, "SUB", "--subscribe", base64Of("n"))
	check(t, healthy.Connect(pub.LastEndpoint()))
	check(t, pub.WaitSubscribers(ctx, "n", 2))
	slow.Stop()
	return healthy, slow
}

// publishUntil publishes numbered messages, each of which the healthy subscriber
// must get before the next, until done says so. It returns their number.
func publishUntil(t *testing.T, pub *sockets.Pub, healthy *sockets.Sub, done func() bool) int {
	t.Helper()
	ctx := timeLimit(t)
	n := 0
	for ; !done(); n++ {
		check(t, pub.Send(ctx, []byte("n"), numbered(n)))
		m, err := healthy.Recv(ctx)
		check(t, err)
		wantFrames(t, m, [][]byte{[]byte("n"), numbered(n)})
	}
	return n
}

func drops(s socket) (n uint64) {
	for _, p := range s.Peers() {
		n += p.Drops
	}
	return n
}

func TestInteropFrozenDrop(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	pub := open(t, sockets.NewPub, sockets.Options{SendHWM: 100})
	healthy, slow := frozen(t, pub)
	n := publishUntil(t, pub, healthy, func() bool { return drops(pub) > 10 })

	// Awake again it gets the queued messages, whole and in order, and then new ones once
	// its queue has room. The last one is sent until it arrives.
	slow.Continue()
	sent, lost := n, drops(pub)
	counting := slow.Start(interop.Op{"op": "count", "n": n - int(lost)})
	var c counted
	counting.Done(&c)
	if !c.Ordered || c.First != 0 || c.Count != n-int(lost) {
		t.Errorf("of %d messages %d were dropped, and libzmq counted %+v", n, lost, c)
	}
	check(t, pub.Send(ctx, []byte("n"), numbered(sent)))
	slow.Call(interop.Op{"op": "count", "n": 1}, &c)
	if c.First != sent {
		t.Errorf("after that came %d in place of %d", c.First, sent)
	}
}

func TestInteropFrozenDisconnect(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	events := newEvents()
	pub := open(t, sockets.NewPub, sockets.Options{SendHWM: 100, FullPolicy: sockets.PolicyDisconnect, Monitor: events.Tell})
	healthy, slow := frozen(t, pub)
	n := publishUntil(t, pub, healthy, func() bool { return events.Count(sockets.EventDisconnected) > 0 })
	gone := events.Await(t, sockets.EventDisconnected).Err
	if !errors.Is(gone, sockets.ErrSlowPeer) {
		t.Fatalf("disconnected for %v, want ErrSlowPeer", gone)
	}
	// Awake again it connects and subscribes by itself.
	slow.Continue()
	check(t, pub.WaitSubscribers(ctx, "n", 2))
	check(t, pub.Send(ctx, []byte("n"), numbered(n)))
	last := -1
	for last != n {
		var c counted
		slow.Call(interop.Op{"op": "count", "n": 1}, &c)
		if c.Count == 0 || c.First <= last {
			t.Fatalf("after %d came %+v", last, c)
		}
		last = c.Last
	}
}

func TestInteropFrozenBlock(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	pub := open(t, sockets.NewPub, sockets.Options{SendHWM: 100, FullPolicy: sockets.PolicyBlock})
	slow := linkTo(t, pub, weBind, "SUB", "--subscribe", base64Of("n"))
	check(t, pub.WaitSubscribers(ctx, "n", 1))
	slow.Stop()

	// The sender comes to a halt, which shows in a number that stands still; a message
	// given up by its context is not sent at all.
	sent := 0
	for {
		short, cancel := context.WithTimeout(ctx, halt)
		err := pub.Send(short, []byte("n"), numbered(sent))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			break
		}
		check(t, err)
		sent++
	}
	slow.Continue()
	const more = 50
	for range more {
		check(t, pub.Send(ctx, []byte("n"), numbered(sent)))
		sent++
	}
	var c counted
	slow.Call(interop.Op{"op": "count", "n": sent}, &c)
	if c != (counted{sent, true, 0, sent - 1}) {
		t.Errorf("of %d messages libzmq counted %+v", sent, c)
	}
	if n := drops(pub); n != 0 {
		t.Errorf("%d drops in spite of the policy", n)
	}
}

// halt is how long a Send waits that is to give up. Should it give up too early
// for want of a processor, the test is still right, only weaker.
const halt = 200 * time.Millisecond

// TestInteropHeartbeatOurs has libzmq answer our PINGs, and then stop.
func TestInteropHeartbeatOurs(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	router := open(t, sockets.NewRouter, sockets.Options{HeartbeatInterval: time.Millisecond, HeartbeatTimeout: hang, HeartbeatTTL: hang})
	dealer := linkTo(t, router, weBind, "DEALER", "--identity", base64Of("it"))
	for i := range 100 {
		pythonSays(dealer, "request")
		m, err := router.Recv(ctx)
		check(t, err)
		wantFrames(t, m, [][]byte{[]byte("it"), []byte("request")})
		check(t, router.Send(ctx, []byte("it"), []byte{byte(i)}))
		wantDescribed(t, pythonReceives(dealer, 1)[0], [][]byte{{byte(i)}})
	}
	seen := newEvents()
	other := open(t, sockets.NewRouter, sockets.Options{HeartbeatInterval: 50 * time.Millisecond, HeartbeatTimeout: 250 * time.Millisecond, Monitor: seen.Tell})
	dealer.Call(interop.Op{"op": "connect", "endpoint": bindAlso(t, other)}, nil)
	seen.Await(t, sockets.EventHandshakeSucceeded)
	dealer.Stop()
	defer dealer.Continue()
	if e := seen.Await(t, sockets.EventDisconnected); !errors.Is(e.Err, sockets.ErrHeartbeatTimeout) {
		t.Errorf("%v", e.Err)
	}
}

// TestInteropHello greets libzmq's DEALER, and notices that it goes.
func TestInteropHello(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	router := open(t, sockets.NewRouter, sockets.Options{HelloMessage: []byte("hello"), DisconnectMessage: []byte("gone")})
	dealer := linkTo(t, router, weBind, "DEALER", "--identity", base64Of("it"))
	wantDescribed(t, pythonReceives(dealer, 1)[0], [][]byte{[]byte("hello")})
	pythonSays(dealer, "last words")
	dealer.Call(interop.Op{"op": "disconnect", "endpoint": router.LastEndpoint()}, nil)
	for _, want := range []string{"last words", "gone"} {
		m, err := router.Recv(ctx)
		check(t, err)
		wantFrames(t, m, [][]byte{[]byte("it"), []byte(want)})
	}
}
