package sockets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/subscriber"
	"clustermap/zmtp"
)

// TestWaitSubscribed: every message published after it returns arrives. The
// publisher is a busy one, and there are many rounds.
func TestWaitSubscribed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{})
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				for range 100 {
					_ = pub.Send(ctx, []byte("noise"), make([]byte, 100))
				}
				// With a single core the others would only get the time slices
				// that are taken from this goroutine.
				time.Sleep(time.Microsecond)
			}
		}
	})
	defer busy.Wait()
	defer close(stop)
	noisy := open(t, NewSub, Options{}) // slow, and so full
	must(t, noisy.Subscribe("noise"))
	must(t, noisy.Connect(pub.LastEndpoint()))

	// The same socket with ever new topics, and ever new sockets.
	rounds := 300
	if testing.Short() {
		rounds /= 5
	}
	old := open(t, NewSub, Options{})
	must(t, old.Connect(pub.LastEndpoint()))
	for i := range rounds {
		topic := fmt.Sprint("topic", i)
		must(t, old.Subscribe(topic))
		must(t, old.WaitSubscribed(ctx))
		must(t, pub.Send(ctx, []byte(topic)))
		if got := received(t, old, 1); got[0] != topic {
			t.Fatalf("%q, want %q", got, topic)
		}
		if i%3 == 0 {
			must(t, old.Unsubscribe(topic))
		}
	}
	for i := range rounds {
		topic := fmt.Sprint("fresh", i)
		sub, err := NewSub(Options{})
		must(t, err)
		if i%2 == 0 {
			must(t, sub.Subscribe(topic))
			must(t, sub.Connect(pub.LastEndpoint()))
		} else {
			must(t, sub.Connect(pub.LastEndpoint()))
			must(t, sub.Subscribe(topic))
		}
		must(t, sub.WaitSubscribed(ctx))
		must(t, pub.Send(ctx, []byte(topic)))
		if got := received(t, sub, 1); got[0] != topic {
			t.Fatalf("%q, want %q", got, topic)
		}
		must(t, sub.Close())
	}
}

// TestWaitSubscribedMany: it waits for all publishers that are connected, from
// many goroutines.
func TestWaitSubscribedMany(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	sub := open(t, NewSub, Options{})
	var pubs []*Pub
	for range 4 {
		pub := bind(t, NewPub, Options{})
		pubs = append(pubs, pub)
		must(t, sub.Connect(pub.LastEndpoint()))
	}
	eventually(t, "all are connected", func() bool {
		return sub.topics.Status().Publishers == len(pubs)
	})
	const workers, rounds = 8, 50
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				topic := fmt.Sprint(w, "/", i)
				if err := errors.Join(sub.Subscribe(topic), sub.WaitSubscribed(ctx)); err != nil {
					t.Error(err)
					return
				}
				for _, pub := range pubs {
					if err := pub.Send(ctx, []byte(topic)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	got := map[string]int{}
	for range workers * rounds * len(pubs) {
		m, err := sub.Recv(ctx)
		must(t, err)
		got[string(m[0])]++
	}
	wg.Wait()
	for topic, n := range got {
		// Topics such as 1/1 and 1/10 overlap, but each message comes once.
		if n != len(pubs) {
			t.Errorf("%s came %d times", topic, n)
		}
	}
}

func TestWaitSubscribedEnds(t *testing.T) {
	t.Parallel()
	sub := open(t, NewSub, Options{})
	must(t, sub.Subscribe("x"))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := sub.WaitSubscribed(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	result := make(chan error)
	go func() { result <- sub.WaitSubscribed(context.Background()) }()
	eventually(t, "it waits", func() bool { return sub.topics.Status().Asked })
	must(t, sub.Close())
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Errorf("closed while waiting: %v", err)
	}
}

// TestSubWire: the subscriptions sent to a publisher, to 3.1 as commands and to 3.0 as
// messages: each distinct topic once, in the order of bytes, when it connects; each
// Subscribe, but only the last Unsubscribe, afterwards.
func TestSubWire(t *testing.T) {
	t.Parallel()
	for _, minor := range []uint8{0, 1} {
		endpoint, accept := listenRaw(t)
		sub := open(t, NewSub, quick(Options{}))
		for _, topic := range []string{"b", "a", "b", "", "gone"} {
			must(t, sub.Subscribe(topic))
		}
		must(t, sub.Unsubscribe("gone"))
		must(t, sub.Connect(endpoint))
		next := func(r *raw) string {
			flags, body := r.Frame()
			if flags&zmtp.FlagCommand == 0 {
				return string(body)
			}
			c, err := zmtp.ParseCommand(body)
			must(t, err)
			return map[string]string{"SUBSCRIBE": "\x01", "CANCEL": "\x00"}[string(c.Name)] + string(c.Data)
		}
		want := func(r *raw, says ...string) {
			t.Helper()
			for _, w := range says {
				if got := next(r); got != w {
					t.Errorf("ZMTP 3.%d: %q, want %q", minor, got, w)
				}
			}
		}
		r := accept()
		r.Send(greeting(minor), ready("PUB", nil))
		r.Greeted()
		want(r, "\x01", "\x01a", "\x01b")
		must(t, sub.Subscribe("b"))
		must(t, sub.Unsubscribe("b"))
		must(t, sub.Unsubscribe("never"))
		must(t, sub.Unsubscribe("b"))
		must(t, sub.Unsubscribe("b"))
		must(t, sub.Unsubscribe("b"))
		must(t, sub.Subscribe("c"))
		want(r, "\x01b", "\x00b", "\x01c")

		// After a reconnection, the present subscriptions.
		r.Conn.Close()
		r = accept()
		r.Send(greeting(minor), ready("PUB", nil))
		r.Greeted()
		want(r, "\x01", "\x01a", "\x01c")

		// PINGs are in order with the subscriptions before them.
		ctx := testContext(t)
		must(t, sub.Subscribe("d"))
		result := make(chan error)
		go func() { result <- sub.WaitSubscribed(ctx) }()
		want(r, "\x01d")
		name, data := r.Command()
		if name != "PING" || len(data) != 10 {
			t.Fatalf("%s %q", name, data)
		}
		// A stale answer, and nonsense, are no answers.
		r.Send(zmtp.AppendPong(nil, nil), zmtp.AppendPong(nil, []byte("12345678")),
			zmtp.AppendPong(nil, binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64([]byte(data[2:]))-1)))
		r.Sync()
		select {
		case err := <-result:
			t.Fatalf("WaitSubscribed returned without an answer: %v", err)
		default:
		}
		r.Send(zmtp.AppendPong(nil, []byte(data[2:])))
		must(t, <-result)
	}
}

// TestSubFilters: a publisher that sends more than asked for is no trouble, and
// its unwanted messages are counted.
func TestSubFilters(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	sub := open(t, NewSub, Options{})
	must(t, sub.Subscribe("yes"))
	must(t, sub.Connect(endpoint))
	r := accept().Greet("PUB", nil)
	r.Command()
	for i := range 100 {
		r.Send(wire("no", fmt.Sprint(i)), wire("yes", fmt.Sprint(i)), wire(""), wire("ye", "s"))
	}
	for i := range 100 {
		m, err := sub.Recv(ctx)
		must(t, err)
		if got := strings.Join(texts(m), " "); got != fmt.Sprint("yes ", i) {
			t.Fatalf("%q", got)
		}
	}
	discarded := func(n uint64) func() bool {
		return func() bool { return sub.Peers()[0].Discarded == n }
	}
	eventually(t, "300 are discarded", discarded(300))
	// Without a subscription nothing comes at all.
	must(t, sub.Unsubscribe("yes"))
	r.Send(wire("yes", "late"))
	eventually(t, "it is discarded", discarded(301))
	must(t, sub.Subscribe(""))
	r.Send(wire("all"))
	wants(t, sub, "all")
}

// TestSubCounts: a topic subscribed to twice stays after one Unsubscribe.
func TestSubCounts(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{})
	sub := subscribed(t, Options{}, pub.LastEndpoint(), "a", "a", "b")
	must(t, sub.Unsubscribe("a"))
	must(t, sub.WaitSubscribed(ctx))
	must(t, pub.Send(ctx, []byte("a1")))
	received(t, sub, 1)
	must(t, sub.Unsubscribe("a"))
	must(t, sub.WaitSubscribed(ctx))
	if n := pub.Subscriptions(); n != 1 {
		t.Errorf("%d topics", n)
	}
	must(t, pub.Send(ctx, []byte("a2")))
	must(t, pub.Send(ctx, []byte("b")))
	if got := received(t, sub, 1); got[0] != "b" {
		t.Errorf("%q", got)
	}
}

// TestSubReconnect: after a publisher's return everything subscribed to in the
// meantime is in force.
func TestSubReconnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := open(t, NewPub, Options{})
	endpoint := freePort(t)
	must(t, pub.Bind(ctx, endpoint))
	sub := subscribed(t, quick(Options{}), endpoint, "a", "b")
	for i := range 5 {
		must(t, pub.Close())
		must(t, sub.Unsubscribe(string(rune('a'+i))))
		must(t, sub.Subscribe(string(rune('c'+i))))
		pub = open(t, NewPub, Options{})
		must(t, pub.Bind(ctx, endpoint))
		want := []string{string(rune('b' + i)), string(rune('c' + i))}
		for _, topic := range want {
			must(t, pub.WaitSubscribers(ctx, topic, 1))
		}
		if n := pub.Subscriptions(); n != 2 {
			t.Errorf("round %d: %d topics", i, n)
		}
		must(t, pub.Send(ctx, []byte{byte('a' + i)}))
		for _, topic := range want {
			must(t, pub.Send(ctx, []byte(topic)))
		}
		if got := received(t, sub, 2); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("round %d: %q, want %q", i, got, want)
		}
	}
}

// TestSubMany: from many publishers, fairly: none waits for another to finish.
func TestSubMany(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const pubs, each = 4, 200
	sub := open(t, NewSub, Options{RecvHWM: 10})
	must(t, sub.Subscribe(""))
	must(t, sub.Bind(ctx, anyPort))
	var wg sync.WaitGroup
	for i := range pubs {
		pub := open(t, NewPub, Options{SendHWM: -1, SendHWMBytes: -1})
		must(t, pub.Connect(sub.LastEndpoint()))
		must(t, pub.WaitSubscribers(ctx, "", 1))
		wg.Go(func() {
			for n := range each {
				if err := pub.Send(ctx, fmt.Append(nil, i), fmt.Append(nil, n), make([]byte, 10_000)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "all have something queued", func() bool {
		n := 0
		for _, p := range sub.Peers() {
			if p.PendingMessages == 10 {
				n++
			}
		}
		return n == pubs
	})
	next := map[string]int{}
	for n := range pubs * each {
		m, err := sub.Recv(ctx)
		must(t, err)
		from := string(m[0])
		if string(m[1]) != fmt.Sprint(next[from]) {
			t.Fatalf("%q, want %d", m[:2], next[from])
		}
		next[from]++
		if n < 40 { // the queued messages
			for other, count := range next {
				if next[from]-count > 1 {
					t.Fatalf("after %d messages %s had %d turns, %s had %d", n+1, from, next[from], other, count)
				}
			}
		}
	}
}

// TestSubSlowPublisher: requests do not pile up without bound for a publisher
// that reads none.
func TestSubSlowPublisher(t *testing.T) {
	t.Parallel()
	endpoint, accept := listenRaw(t)
	seen := newEvents()
	sub := open(t, NewSub, quick(Options{SendHWMBytes: 1 << 20, SendBuffer: 4096, Monitor: seen.Tell}))
	must(t, sub.Connect(endpoint))
	accept().Greet("PUB", nil)
	seen.Await(t, EventHandshakeSucceeded)
	topic := strings.Repeat("t", subscriber.MaxTopic)
	must(t, sub.Subscribe(topic))
	eventually(t, "it is disconnected", func() bool {
		for range 100 { // at a time, because eventually pauses
			must(t, sub.Subscribe(topic))
		}
		return seen.Count(EventDisconnected) > 0
	})
	if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrSlowPeer) {
		t.Errorf("%v", e.Err)
	}
	r := accept().Greet("PUB", nil) // and it starts afresh
	if name, data := r.Command(); name != "SUBSCRIBE" || data != topic {
		t.Errorf("%s of %d bytes", name, len(data))
	}
	if err := sub.Subscribe(topic + "t"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a topic that is too large: %v", err)
	}
}
