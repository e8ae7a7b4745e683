package sockets

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"clustermap/internal/engine"
	"clustermap/internal/hooks"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// inprocOptions returns options with a namespace for the sockets of one test.
func inprocOptions() Options { return Options{Inproc: new(Inproc)} }

// TestInprocNames: each namespace has its own names, the process one for all
// others.
func TestInprocNames(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	name := "inproc://" + t.Name()
	a, b, shared, other := inprocOptions(), inprocOptions(), Options{}, Options{}
	var routers []*Router
	for _, o := range []Options{a, b, shared} {
		router := open(t, NewRouter, o)
		must(t, router.Bind(ctx, name))
		routers = append(routers, router)
	}
	for i, o := range []Options{a, b, other} {
		again := open(t, NewRouter, o)
		err := again.Bind(ctx, name)
		var typed *net.OpError
		if !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &typed) {
			t.Errorf("name in use: %v", err)
		}
		dealer := open(t, NewDealer, o)
		must(t, dealer.Connect(name))
		echo(t, ctx, dealer, routers[i])
	}
}

// TestInprocOrder: everything arrives, in order, from many senders to many
// receivers, with queues that are full most of the time.
func TestInprocOrder(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const senders, each = 4, 5000
	for _, batches := range []bool{false, true} {
		o := inprocOptions()
		o.SendHWM, o.RecvHWM = 5, 5
		pull := open(t, NewPull, only(zmtp.TypePull, o))
		must(t, pull.Bind(ctx, "inproc://a"))
		var wg sync.WaitGroup
		for s := range senders {
			push := open(t, NewPush, only(zmtp.TypePush, o))
			must(t, push.Connect("inproc://a"))
			wg.Go(func() {
				for i := range each {
					if err := push.Send(ctx, []byte{byte(s)}, fmt.Append(nil, i)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		var next [senders]int
		take := func(sender byte, text string) {
			if text != fmt.Sprint(next[sender]) {
				t.Fatalf("sender %d: %s instead of %d", sender, text, next[sender])
			}
			next[sender]++
		}
		var b Batch
		for n := 0; n < senders*each; {
			if batches {
				must(t, pull.RecvBatch(ctx, &b))
				for i := range b.Len() {
					sender, rest := b.Message(i).Next()
					text, _ := rest.Next()
					take(sender[0], string(text))
				}
				n += b.Len()
				continue
			}
			m, err := pull.Recv(ctx)
			must(t, err)
			take(m[0][0], string(m[1]))
			n++
		}
		b.Release()
		wg.Wait()
	}
}

// TestInprocManyReceivers: no message is lost or doubled, and no receiver sleeps beside a
// message, when several goroutines receive from one socket.
func TestInprocManyReceivers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const receivers, senders, each = 4, 3, 3000
	o := inprocOptions()
	o.SendHWM, o.RecvHWM = 3, 4
	pull := open(t, NewPull, only(zmtp.TypePull, o))
	must(t, pull.Bind(ctx, "inproc://a"))
	var count [senders * each]atomic.Int32
	var all atomic.Int32
	done := make(chan struct{})
	for range receivers {
		go func() {
			for {
				m, err := pull.Recv(ctx)
				if err != nil {
					return
				}
				var i int
				fmt.Sscan(string(m[0]), &i)
				count[i].Add(1)
				if all.Add(1) == senders*each {
					close(done)
				}
			}
		}()
	}
	for s := range senders {
		push := open(t, NewPush, only(zmtp.TypePush, o))
		must(t, push.Connect("inproc://a"))
		go func() {
			for i := range each {
				_ = push.Send(ctx, fmt.Append(nil, s*each+i))
			}
		}()
	}
	within(t, "all messages", func() { <-done })
	for i := range count {
		if n := count[i].Load(); n != 1 {
			t.Fatalf("message %d came %d times", i, n)
		}
	}
}

// TestInprocPubSub: subscriptions pass over it, from either side, and go with
// the subscriber.
func TestInprocPubSub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, binds := range []string{"pub", "sub"} {
		o := inprocOptions()
		pub, sub := open(t, NewPub, o), open(t, NewSub, o)
		must(t, sub.Subscribe("a"))
		if binds == "pub" {
			must(t, pub.Bind(ctx, "inproc://a"))
			must(t, sub.Connect("inproc://a"))
		} else {
			must(t, sub.Bind(ctx, "inproc://a"))
			must(t, pub.Connect("inproc://a"))
		}
		must(t, sub.Subscribe("b"))
		must(t, sub.WaitSubscribed(ctx))
		big := make([]byte, 10*queue.LendFrom)
		l := newLender()
		must(t, pub.Send(ctx, []byte("c")))
		must(t, pub.Send(ctx, []byte("b"), []byte("1")))
		must(t, sub.Subscribe(""))
		must(t, sub.WaitSubscribed(ctx))
		must(t, pub.sendWire(ctx, append(wire("lent"), wire(string(big))...), 2, l))
		wants(t, sub, "b 1", "lent", string(big))
		if l.Retained.Load() == 0 {
			t.Error("nothing was lent")
		}
		eventually(t, "what was lent is given back", func() bool { return l.Refs.Load() == 0 })
		if n := pub.Subscriptions(); n != 3 {
			t.Errorf("%d subscriptions", n)
		}
		must(t, sub.Unsubscribe("a"))
		eventually(t, "the end of a subscription", func() bool { return pub.Subscriptions() == 2 })
		must(t, sub.Close())
		eventually(t, "the end of all subscriptions", func() bool { return pub.Subscriptions() == 0 })
	}
}

// TestInprocClose: messages sent before a Close arrive; both sides learn of the end,
// nothing reconnects, and Connect can be called anew.
func TestInprocClose(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, closes := range []string{"sender", "sender disconnects", "receiver"} {
		o := inprocOptions()
		o.Linger = LingerNone
		seen := newEvents()
		o.Monitor = seen.Tell
		pull := open(t, NewPull, o)
		told := newEvents()
		o.Monitor = told.Tell
		push := open(t, NewPush, o)
		must(t, push.Connect("inproc://a"))
		must(t, pull.Bind(ctx, "inproc://a"))
		for i := range 1500 {
			must(t, push.Send(ctx, fmt.Append(nil, i)))
		}
		wants(t, pull, "0")
		switch closes {
		case "sender":
			within(t, "Close", func() { must(t, push.Close()) })
		case "sender disconnects":
			must(t, push.Disconnect("inproc://a"))
		case "receiver":
			within(t, "Close", func() { must(t, pull.Close()) })
		}
		far, near := seen, told
		if closes == "receiver" {
			far, near = told, seen
		}
		if e := far.Await(t, EventDisconnected); !errors.Is(e.Err, io.EOF) {
			t.Errorf("%v", e.Err)
		}
		if closes == "sender disconnects" { // of Close the own monitor is not told
			if e := near.Await(t, EventDisconnected); !errors.Is(e.Err, ErrClosed) {
				t.Errorf("%v", e.Err)
			}
		}
		if closes == "receiver" {
			if _, err := pull.Recv(ctx); !errors.Is(err, ErrClosed) {
				t.Errorf("Recv after Close: %v", err)
			}
			again := open(t, NewPull, Options{Inproc: o.Inproc})
			must(t, again.Bind(ctx, "inproc://a"))
			if err := push.TrySend([]byte("x")); !errors.Is(err, ErrWouldBlock) {
				t.Errorf("to nobody: %v", err)
			}
			eventually(t, "Connect anew", func() bool {
				must(t, push.Connect("inproc://a"))
				return push.TrySend([]byte("again")) == nil
			})
			wants(t, again, "again")
		} else {
			for i := 1; i < 1500; i++ {
				m, err := pull.Recv(ctx)
				must(t, err)
				if string(m[0]) != fmt.Sprint(i) {
					t.Fatalf("%q instead of %d", m, i)
				}
			}
		}
		if closes == "sender" && len(pull.Peers()) != 0 {
			t.Errorf("%+v", pull.Peers())
		}
	}
}

// TestInprocCloseWaiting: a Connect without a Bind does not hold up Close for longer than
// Linger.
func TestInprocCloseWaiting(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	o.Linger = 1
	push := open(t, NewPush, o)
	must(t, push.Connect("inproc://a"))
	must(t, push.Send(ctx, []byte("for nobody")))
	within(t, "Close", func() { must(t, push.Close()) })

	// While it lingers, the name may yet come to be bound.
	o.Linger = hang
	push = open(t, NewPush, o)
	must(t, push.Connect("inproc://a"))
	must(t, push.Send(ctx, []byte("late")))
	closed := make(chan error, 1)
	go func() { closed <- push.Close() }()
	pull := open(t, NewPull, o)
	must(t, pull.Bind(ctx, "inproc://a"))
	wants(t, pull, "late")
	must(t, <-closed)
	if _, waiting := (*engine.Names)(o.Inproc).Count(); waiting != 0 {
		t.Errorf("%d names are waited for", waiting)
	}
}

// TestInprocIncompatible: types that do not fit are refused, both sides are
// told, and nothing is left.
func TestInprocIncompatible(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	seen, told := newEvents(), newEvents()
	o.Monitor = seen.Tell
	pub := open(t, NewPub, o)
	must(t, pub.Bind(ctx, "inproc://a"))
	o.Monitor = told.Tell
	dealer := open(t, NewDealer, o)
	must(t, dealer.Connect("inproc://a"))
	for _, e := range []Event{seen.Await(t, EventHandshakeFailed), told.Await(t, EventHandshakeFailed)} {
		var typed *PeerError
		if !errors.As(e.Err, &typed) || e.Endpoint != "inproc://a" {
			t.Errorf("%+v", e)
		}
	}
	eventually(t, "the dealer gives up", func() bool { return len(dealer.Peers()) == 0 })
}

// TestInprocIdentityInUse: the second of a name waits.
func TestInprocIdentityInUse(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	seen := newEvents()
	o.Monitor = seen.Tell
	router := open(t, NewRouter, o)
	must(t, router.Bind(ctx, "inproc://a"))
	o.Monitor = nil
	o.Identity, o.Linger = []byte("me"), LingerNone // the second one's messages are never taken
	first, second := open(t, NewDealer, o), open(t, NewDealer, o)
	must(t, first.Connect("inproc://a"))
	must(t, second.Connect("inproc://a"))
	if e := seen.Await(t, EventPeerIgnored); !errors.Is(e.Err, ErrIdentityInUse) {
		t.Errorf("%+v", e)
	}
	must(t, second.Send(ctx, []byte("no")))
	must(t, first.Send(ctx, []byte("yes")))
	m, err := router.Recv(ctx)
	must(t, err)
	if string(m[1]) != "yes" {
		t.Errorf("%q", m)
	}
	must(t, router.Send(ctx, []byte("me"), []byte("you")))
	wants(t, first, "you")
}

// TestInprocPeerDisconnect: the bound side ends a connection, for a reason that
// its monitor is told.
func TestInprocPeerDisconnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	seen := newEvents()
	o.Monitor = seen.Tell
	router := open(t, NewRouter, o)
	must(t, router.Bind(ctx, "inproc://a"))
	dealer := open(t, NewDealer, Options{Inproc: o.Inproc, Metadata: map[string]string{"X-Who": "me"}})
	must(t, dealer.Connect("inproc://a"))
	peer := seen.Await(t, EventHandshakeSucceeded).Peer
	if who, _ := peer.Property("x-who"); who != "me" || peer.SocketType() != "DEALER" {
		t.Errorf("%q, %q", who, peer.SocketType())
	}
	reason := errors.New("enough")
	peer.Disconnect(reason)
	if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, reason) || e.Peer != peer {
		t.Errorf("%+v", e)
	}
	eventually(t, "the dealer is alone", func() bool { return len(dealer.Peers()) == 0 })
	if err := router.SendTo(ctx, peer, []byte("x")); !errors.Is(err, ErrUnroutable) {
		t.Errorf("to one that is gone: %v", err)
	}
}

// TestInprocPrepare: it runs, and may change the bytes, also of another owner's lent
// memory.
func TestInprocPrepare(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	pub := open(t, NewPub, o)
	must(t, pub.Bind(ctx, "inproc://a"))
	sub := open(t, NewSub, o)
	hooks.Prepare(sub, func(b *hooks.Batch) {
		for _, s := range b.Spans() {
			b.Wire()[s.Start+2] = 'X'
		}
	})
	must(t, sub.Subscribe(""))
	must(t, sub.Connect("inproc://a"))
	must(t, sub.WaitSubscribed(ctx))
	lent := []byte(strings.Repeat(string(wire("abc")), queue.LendFrom))
	l := newLender()
	must(t, pub.Send(ctx, []byte("abc")))
	must(t, pub.sendWire(ctx, lent, queue.LendFrom, l))
	var b Batch
	defer b.Release()
	for n := 0; n < queue.LendFrom+1; n += b.Len() {
		must(t, sub.RecvBatch(ctx, &b))
		for i := range b.Len() {
			if body, _ := b.Message(i).Next(); string(body) != "Xbc" {
				t.Fatalf("%q", body)
			}
		}
	}
	if string(lent) != strings.Repeat(string(wire("abc")), queue.LendFrom) {
		t.Error("what was lent has changed")
	}
}

// TestInprocReadable: the channel and the poller know of messages that were not
// fetched yet.
func TestInprocReadable(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	pull := open(t, NewPull, o)
	must(t, pull.Bind(ctx, "inproc://a"))
	readable := pull.Readable()
	push := open(t, NewPush, o)
	must(t, push.Connect("inproc://a"))
	for range 3 {
		select {
		case <-readable:
			t.Fatal("readable without a message")
		default:
		}
		must(t, push.Send(ctx, []byte("1")))
		must(t, push.Send(ctx, []byte("2")))
		for range 2 {
			within(t, "readable", func() { <-readable })
			_, err := pull.TryRecv()
			must(t, err)
		}
	}
}

// TestInprocStress opens and closes both ends at random, against each other.
func TestInprocStress(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	names := new(Inproc)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 60 {
				o := Options{Inproc: names, Linger: LingerNone, Identity: fmt.Append(nil, g, ".", i)}
				endpoint := fmt.Sprint("inproc://", i%3)
				if g%2 == 0 {
					router, err := NewRouter(o)
					if err != nil {
						t.Error(err)
						return
					}
					if err := router.Bind(ctx, endpoint); err == nil {
						if m, err := router.Recv(queue.NoWait); err == nil {
							_ = router.Send(ctx, m...)
						}
					} else if !errors.Is(err, syscall.EADDRINUSE) {
						t.Error(err)
					}
					router.Close()
					continue
				}
				dealer, err := NewDealer(o)
				if err != nil {
					t.Error(err)
					return
				}
				_ = dealer.Connect(endpoint)
				_ = dealer.TrySend([]byte("x"))
				_, _ = dealer.Recv(queue.NoWait)
				if i%2 == 0 {
					_ = dealer.Disconnect(endpoint)
				}
				dealer.Close()
			}
		})
	}
	within(t, "all ends", wg.Wait)
	if bound, waiting := (*engine.Names)(names).Count(); bound+waiting != 0 {
		t.Errorf("%d names are bound, and %d waited for", bound, waiting)
	}
}

// TestAllocInproc: neither way of sending and receiving allocates.
func TestAllocInproc(t *testing.T) {
	ctx := testContext(t)
	o := inprocOptions()
	pull := open(t, NewPull, o)
	must(t, pull.Bind(ctx, "inproc://a"))
	push := open(t, NewPush, o)
	must(t, push.Connect("inproc://a"))
	var b Batch
	defer b.Release()
	recv := func(b *Batch) error { return pull.RecvBatch(ctx, b) }
	for _, n := range []int{1, 100} {
		noAllocs(t, "Send", func() {
			for range n {
				must(t, push.Send(ctx, payload...))
			}
			takeAll(t, recv, &b, n)
		})
	}
	lent := []byte(strings.Repeat(string(wire("abc")), queue.LendFrom))
	l := newLender()
	noAllocs(t, "SendWire", func() {
		must(t, push.sendWire(ctx, lent, queue.LendFrom, l))
		takeAll(t, recv, &b, queue.LendFrom)
	})
}
