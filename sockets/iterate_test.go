package sockets

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// sendNumbers sends the numbers from first to last, one message each.
func sendNumbers(t testing.TB, s interface {
	Send(context.Context, ...[]byte) error
}, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		must(t, s.Send(testContext(t), []byte(strconv.Itoa(i))))
	}
}

// TestMessages: a loop sees every message once and in order, over tcp and inproc.
func TestMessages(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, endpoint := range []string{anyPort, "inproc://messages"} {
		pull := open(t, NewPull, Options{Inproc: &Inproc{}})
		must(t, pull.Bind(ctx, endpoint))
		push := open(t, NewPush, Options{Inproc: pull.opts().Inproc})
		must(t, push.Connect(pull.LastEndpoint()))
		go sendNumbers(t, push, 1, 5000)
		n := 0
		for m, err := range pull.Messages(ctx) {
			must(t, err)
			if n++; string(m[0]) != strconv.Itoa(n) || len(m) != 1 {
				t.Fatalf("%s: message %d is %q", endpoint, n, m)
			}
			if n == 5000 {
				break
			}
		}
	}
}

// TestMessagesBreak: a loop that ends after each message loses none, with any kind of
// receive call next.
func TestMessagesBreak(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, endpoint := range []string{anyPort, "inproc://break"} {
		// Several fill the queue up to the high-water mark, so putting back exceeds it.
		pull := open(t, NewPull, Options{Inproc: &Inproc{}, RecvHWM: 100})
		must(t, pull.Bind(ctx, endpoint))
		push := open(t, NewPush, Options{Inproc: pull.opts().Inproc, SendHWM: 100})
		must(t, push.Connect(pull.LastEndpoint()))
		const last = 3000
		go sendNumbers(t, push, 1, last)
		var got []int
		add := func(m Message) {
			i, err := strconv.Atoi(string(m[0]))
			must(t, err)
			got = append(got, i)
		}
		var b Batch
		for len(got) < last {
			switch len(got) % 4 {
			case 0, 1:
				for m, err := range pull.Messages(ctx) {
					must(t, err)
					add(m)
					if len(got)%7 < 5 {
						break
					}
				}
			case 2:
				m, err := pull.Recv(ctx)
				must(t, err)
				add(m)
			case 3:
				must(t, pull.RecvBatch(ctx, &b))
				for i := range b.Len() {
					add(Message(b.Message(i).AppendFrames(nil)))
				}
				b.Release()
			}
		}
		for i, n := range got {
			if n != i+1 {
				t.Fatalf("%s: message %d is number %d", endpoint, i+1, n)
			}
		}
		eventually(t, "an empty queue", func() bool {
			for _, p := range append(pull.Peers(), push.Peers()...) {
				if p.PendingMessages != 0 || p.PendingBytes != 0 || p.QueuedMessages != 0 {
					return false
				}
			}
			return true
		})
	}
}

// TestMessagesGone: messages that a loop puts back stay available when the peer has gone,
// and count as leftovers.
func TestMessagesGone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	sendNumbers(t, push, 1, 100)
	eventually(t, "messages", func() bool { p := pull.Peers(); return len(p) == 1 && p[0].PendingMessages == 100 })
	for m, err := range pull.Messages(ctx) {
		must(t, err)
		if string(m[0]) != "1" {
			t.Fatalf("%q", m)
		}
		must(t, push.Close())
		eventually(t, "the end", func() bool { return len(pull.Peers()) == 0 })
		break
	}
	if left := pull.core.In.Status().Leftovers; left == 0 {
		t.Error("the messages of the peer that has gone are not counted")
	}
	n := 1
	for m, err := range pull.Messages(ctx) {
		must(t, err)
		if n++; string(m[0]) != strconv.Itoa(n) {
			t.Fatalf("message %d is %q", n, m)
		}
		if n == 100 {
			break
		}
	}
	if left := pull.core.In.Status().Leftovers; left != 0 {
		t.Errorf("%d bytes of leftovers of nobody", left)
	}
}

// TestMessagesCut: after Disconnect, nothing that the endpoint has sent is received,
// also if a loop has taken it before.
func TestMessagesCut(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := bind(t, NewPush, Options{})
	pull := open(t, NewPull, Options{})
	must(t, pull.Connect(push.LastEndpoint()))
	sendNumbers(t, push, 1, 100)
	eventually(t, "messages", func() bool { return pull.Peers()[0].PendingMessages == 100 })
	for _, err := range pull.Messages(ctx) {
		must(t, err)
		must(t, pull.Disconnect(push.LastEndpoint()))
		break
	}
	if m, err := pull.TryRecv(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("%q, %v", m, err)
	}
}

// TestMessagesEnd: the error that ends a loop is its last pair.
func TestMessagesEnd(t *testing.T) {
	t.Parallel()
	last := func(seq iter.Seq2[Message, error]) (n int, last error) {
		for m, err := range seq {
			if err == nil {
				n++
			} else if m != nil {
				t.Errorf("a message %q with %v", m, err)
			}
			last = err
		}
		return n, last
	}
	pull := bind(t, NewPull, Options{RecvTimeout: 10 * time.Millisecond})
	if n, err := last(pull.Messages(testContext(t))); n != 0 || !errors.Is(err, ErrTimeout) {
		t.Errorf("%d messages, %v", n, err)
	}
	over, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := last(pull.Messages(over)); err != context.Canceled {
		t.Error(err)
	}
	rep := open(t, NewRep, Options{})
	if _, err := last(open(t, NewReq, Options{}).Messages(testContext(t))); !errors.Is(err, ErrState) {
		t.Error(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { rep.Close() })
	if _, err := last(rep.Messages(testContext(t))); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	n := 0
	for b, err := range rep.Batches(testContext(t)) {
		if n++; b != nil || !errors.Is(err, ErrClosed) {
			t.Errorf("%v, %v", b, err)
		}
	}
	if n != 1 {
		t.Errorf("%d pairs", n)
	}
}

// TestMessagesContext: a context that ends in the middle of a batch ends the loop
// before the next message, and that message is not lost.
func TestMessagesContext(t *testing.T) {
	t.Parallel()
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	sendNumbers(t, push, 1, 10)
	eventually(t, "messages", func() bool { p := pull.Peers(); return len(p) == 1 && p[0].PendingMessages == 10 })
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	n := 0
	for _, err := range pull.Messages(ctx) {
		if n++; n == 3 {
			cancel()
		}
		if n <= 3 {
			must(t, err)
			continue
		}
		if err != context.Canceled {
			t.Error(err)
		}
		// Messages that were not yielded can be received already.
		if m, err := pull.TryRecv(); err != nil || string(m[0]) != "4" {
			t.Errorf("%q, %v", m, err)
		}
	}
	if n != 4 {
		t.Errorf("%d pairs", n)
	}
}

// TestMessagesPanic: a panic in the body loses only the message that it was about.
func TestMessagesPanic(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	sendNumbers(t, push, 1, 2)
	func() {
		defer func() { _ = recover() }()
		for range pull.Messages(ctx) {
			panic("body")
		}
	}()
	if m, err := pull.Recv(ctx); err != nil || string(m[0]) != "2" {
		t.Errorf("%q, %v", m, err)
	}
}

// TestMessagesKinds: the loop yields the messages that Recv of each type would return.
func TestMessagesKinds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first := func(seq iter.Seq2[Message, error]) []string {
		t.Helper()
		for m, err := range seq {
			must(t, err)
			return texts(m)
		}
		return nil
	}
	router := bind(t, NewRouter, Options{})
	dealer := open(t, NewDealer, Options{Identity: []byte("me")})
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("a"), nil, []byte("b")))
	if got := first(router.Messages(ctx)); !slices.Equal(got, []string{"me", "a", "", "b"}) {
		t.Errorf("ROUTER: %q", got)
	}
	must(t, router.Send(ctx, []byte("me"), []byte("c")))
	if got := first(dealer.Messages(ctx)); !slices.Equal(got, []string{"c"}) {
		t.Errorf("DEALER: %q", got)
	}

	// A server is a loop: the reply is sent in its body.
	rep := bind(t, NewRep, Options{})
	var server sync.WaitGroup
	server.Go(func() {
		for m, err := range rep.Messages(ctx) {
			if err != nil {
				return
			}
			must(t, rep.Send(ctx, m[0], []byte("!")))
		}
	})
	req := open(t, NewReq, Options{})
	must(t, req.Connect(rep.LastEndpoint()))
	for i := range 3 {
		must(t, req.Send(ctx, []byte(strconv.Itoa(i))))
		if got := first(req.Messages(ctx)); !slices.Equal(got, []string{strconv.Itoa(i), "!"}) {
			t.Errorf("REQ: %q", got)
		}
	}
	must(t, rep.Close())
	server.Wait()

	// With XPubManual the subscription is decided in the body.
	xpub := bind(t, NewXPub, Options{XPubManual: true})
	sub := open(t, NewSub, Options{})
	for _, topic := range []string{"a", "b", "c"} {
		must(t, sub.Subscribe(topic))
	}
	must(t, sub.Connect(xpub.LastEndpoint()))
	var topics []string
	for len(topics) < 3 {
		for m, err := range xpub.Messages(ctx) {
			must(t, err)
			topics = append(topics, string(m[0][1:]))
			must(t, xpub.Subscribe(strings.ToUpper(string(m[0][1:]))))
			break
		}
	}
	if fmt.Sprint(topics) != "[a b c]" {
		t.Errorf("XPUB: %q", topics)
	}
	if xpub.Subscriptions() != 3 {
		t.Errorf("%d subscriptions", xpub.Subscriptions())
	}
}

// TestBatches: the batches of a loop have all messages.
func TestBatches(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	go sendNumbers(t, push, 1, 3000)
	n := 0
	for n < 3000 {
		for b, err := range pull.Batches(ctx) {
			must(t, err)
			for i := range b.Len() {
				body, _ := b.Message(i).Next()
				if n++; string(body) != strconv.Itoa(n) {
					t.Fatalf("message %d is %q", n, body)
				}
			}
			if n%2 == 0 || n == 3000 {
				break
			}
		}
	}
}

// TestMessagesConcurrent: loops in several goroutines, which end again and again, get
// each message once.
func TestMessagesConcurrent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	pull := bind(t, NewPull, Options{})
	var senders sync.WaitGroup
	const each, peers = 1000, 3
	for p := range peers {
		push := open(t, NewPush, Options{})
		must(t, push.Connect(pull.LastEndpoint()))
		senders.Go(func() { sendNumbers(t, push, p*each+1, (p+1)*each) })
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	var loops sync.WaitGroup
	for g := range 3 {
		loops.Go(func() {
			for ctx.Err() == nil {
				n := 0
				for m, err := range pull.Messages(ctx) {
					if err != nil {
						return
					}
					mu.Lock()
					if seen[string(m[0])] {
						t.Errorf("%s came twice", m[0])
					}
					seen[string(m[0])] = true
					if len(seen) == each*peers {
						cancel()
					}
					mu.Unlock()
					if n++; n > g {
						break
					}
				}
			}
		})
	}
	senders.Wait()
	loops.Wait()
	if len(seen) != each*peers {
		t.Errorf("%d messages", len(seen))
	}
}

// TestAllocMessages: a message in a loop allocates nothing.
func TestAllocMessages(t *testing.T) {
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect(router.LastEndpoint()))
	next, stop := iter.Pull2(router.Messages(ctx))
	defer stop()
	noAllocs(t, "Messages", func() {
		for range 10 {
			must(t, dealer.Send(ctx, payload...))
		}
		for range 10 {
			_, err, _ := next()
			must(t, err)
		}
	})
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	batch, end := iter.Pull2(pull.Batches(ctx))
	defer end()
	noAllocs(t, "Batches", func() {
		must(t, push.Send(ctx, payload...))
		b, err, _ := batch()
		must(t, err)
		if b.Len() != 1 {
			t.Fatal(b.Len())
		}
	})
}

// TestMessagesLastValue: with XPubManualLastValue, a message that the body sends goes to
// the subscriber whose message the body has, also for the second of a batch.
func TestMessagesLastValue(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	xpub := bind(t, NewXPub, Options{XPubManual: true, XPubManualLastValue: true})
	other := open(t, NewSub, Options{})
	must(t, other.Subscribe("t"))
	must(t, other.Connect(xpub.LastEndpoint()))
	_, peer, err := xpub.RecvFrom(ctx)
	must(t, err)
	must(t, xpub.SubscribePeer(peer, "t"))
	must(t, xpub.Send(ctx, []byte("t")))
	_, err = other.Recv(ctx)
	must(t, err)

	sub := open(t, NewSub, Options{})
	for _, topic := range []string{"t", "t1", "t2"} {
		must(t, sub.Subscribe(topic))
	}
	must(t, sub.Connect(xpub.LastEndpoint()))
	eventually(t, "subscriptions", func() bool { size, _, _ := xpub.core.In.Look(&xpub.queue); return size.Messages == 3 })
	n := 0
	for m, err := range xpub.Messages(ctx) {
		must(t, err)
		must(t, xpub.Subscribe(string(m[0][1:])))
		must(t, xpub.Send(ctx, m[0][1:]))
		if n++; n == 3 {
			break
		}
	}
	for range n {
		_, err := sub.Recv(ctx)
		must(t, err)
	}
	must(t, xpub.Send(ctx, []byte("t"), []byte("for all")))
	if m, err := other.Recv(ctx); err != nil || len(m) != 2 {
		t.Errorf("another subscriber received %q, %v", m, err)
	}
}
