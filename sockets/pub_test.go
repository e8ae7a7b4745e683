package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// subscribed makes a SUB with its subscriptions in force at the publishers.
func subscribed(t testing.TB, o Options, endpoint string, topics ...string) *Sub {
	t.Helper()
	sub := open(t, NewSub, o)
	for _, topic := range topics {
		must(t, sub.Subscribe(topic))
	}
	must(t, sub.Connect(endpoint))
	must(t, sub.WaitSubscribed(testContext(t)))
	return sub
}

// received takes n messages and returns their frames, joined.
func received(t testing.TB, sub *Sub, n int) []string {
	t.Helper()
	ctx := testContext(t)
	var got []string
	for range n {
		m, err := sub.Recv(ctx)
		must(t, err)
		got = append(got, strings.Join(texts(m), " "))
	}
	return got
}

func TestPubSub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{})
	sub := subscribed(t, Options{}, pub.LastEndpoint(), "a")
	for i := range 100 {
		must(t, pub.Send(ctx, []byte("b"), []byte("no")))
		must(t, pub.Send(ctx, []byte("a"), fmt.Append(nil, i)))
	}
	for i, got := range received(t, sub, 100) {
		if want := fmt.Sprint("a ", i); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

// TestPubPrefixes compares the messages that subscribers with random topics get, by Send,
// SendWire and SendSpans, with the model: each message that begins with any of the topics
// once, in order.
func TestPubPrefixes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rng := rand.New(rand.NewPCG(7, 7))
	pub := bind(t, NewPub, Options{SendHWM: -1})
	word := func(n int) string {
		var b strings.Builder
		for range rng.IntN(n) {
			b.WriteByte("ab/"[rng.IntN(3)])
		}
		return b.String()
	}
	const end = "\xffend"
	var subs []*Sub
	var topics [][]string
	for i := range 12 {
		mine := []string{end}
		for range rng.IntN(6) {
			mine = append(mine, word(4))
		}
		if i == 0 {
			mine = append(mine, "") // all, and particular topics as well
		}
		subs = append(subs, subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), mine...))
		topics = append(topics, mine)
	}
	// Then some change their mind.
	for i, sub := range subs[6:] {
		i += 6
		gone := topics[i][rng.IntN(len(topics[i]))]
		if gone != end {
			for slices.Contains(topics[i], gone) {
				at := slices.Index(topics[i], gone)
				topics[i] = slices.Delete(topics[i], at, at+1)
				must(t, sub.Unsubscribe(gone))
			}
		}
		must(t, sub.WaitSubscribed(ctx))
	}
	var sent []string
	for len(sent) < 2000 {
		if rng.IntN(2) == 0 {
			topic := word(6)
			must(t, pub.Send(ctx, []byte(topic), fmt.Append(nil, len(sent))))
			sent = append(sent, topic)
			continue
		}
		var data []byte
		var spans []buf.Span
		for range 1 + rng.IntN(100) {
			topic := word(6)
			start := len(data)
			data = append(data, wire(topic, fmt.Sprint(len(sent)))...)
			// Where a span begins does not matter.
			spans = append(spans, buf.Span{Start: 7, End: 7 + uint32(len(data)-start)})
			sent = append(sent, topic)
		}
		if rng.IntN(2) == 0 {
			must(t, pub.sendWire(ctx, data, len(spans), newLender()))
		} else {
			must(t, hooks.SendSpans(ctx, pub, data, spans, newLender()))
		}
	}
	must(t, pub.Send(ctx, []byte(end)))
	for i, sub := range subs {
		var want []string
		for n, topic := range sent {
			if slices.ContainsFunc(topics[i], func(prefix string) bool { return strings.HasPrefix(topic, prefix) }) {
				want = append(want, fmt.Sprint(topic, " ", n))
			}
		}
		if got := received(t, sub, len(want)); !slices.Equal(got, want) {
			t.Fatalf("subscriber %d to %q: got %q\nwant %q", i, topics[i], got, want)
		}
		if got := received(t, sub, 1); got[0] != end {
			t.Fatalf("subscriber %d got more than it subscribed to: %q", i, got)
		}
	}
}

// TestPubSet: at a publisher topics are a set: however often a peer subscribes,
// it gets a message once, and one CANCEL ends it. Both forms, commands and
// messages, mean the same and keep their order.
func TestPubSet(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{})
	r := dialRaw(t, pub.LastEndpoint()).Greet("XSUB", nil)
	subscribe, cancel := zmtp.AppendSubscribe(nil, []byte("a")), zmtp.AppendCancel(nil, []byte("a"))
	for _, c := range []struct {
		says [][]byte
		want int
	}{
		{[][]byte{subscribe}, 1},
		{[][]byte{subscribe, subscribe, wire("\x01a")}, 1},
		{[][]byte{cancel}, 0},
		{[][]byte{cancel, cancel, wire("\x00a")}, 0},
		{[][]byte{wire("\x01a")}, 1},
		{[][]byte{wire("\x00a"), subscribe}, 1},
		{[][]byte{wire("\x00a")}, 0},
		// Bytes that are read together keep their order.
		{[][]byte{slices.Concat(wire("\x01a"), cancel, wire("\x01a"))}, 1},
		{[][]byte{slices.Concat(wire("\x01a"), cancel)}, 0},
		{[][]byte{slices.Concat(subscribe, wire("\x00a"))}, 0},
		{[][]byte{slices.Concat(wire("\x01a"), cancel, wire("\x01a"), wire("x"), wire("", ""), wire("\x02a"))}, 1},
	} {
		r.Send(c.says...)
		r.Sync()
		if n := pub.Subscriptions(); n != c.want {
			t.Fatalf("%q: %d topics, want %d", c.says, n, c.want)
		}
		must(t, pub.Send(ctx, []byte("a")))
		r.Send(zmtp.AppendPing(nil, 0, nil))
		messages := 0
		for messages < c.want {
			if flags, _ := r.Frame(); flags&zmtp.FlagCommand == 0 {
				messages++
			}
		}
		r.Sync()
	}
	if p := pub.Peers()[0]; p.Discarded != 3 {
		t.Errorf("%d messages of a subscriber were discarded, want 3", p.Discarded)
	}
}

// TestPubForgets: a peer that goes takes its topics along, many at once too.
func TestPubForgets(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{})
	stays := subscribed(t, Options{}, pub.LastEndpoint(), "0")
	for range 3 {
		r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
		var all []byte
		for i := range 1000 { // they are removed in bursts
			all = zmtp.AppendSubscribe(all, fmt.Append(nil, i))
		}
		r.Send(all)
		r.Sync()
		must(t, pub.WaitSubscribers(ctx, "0", 2))
		r.Conn.Close()
		eventually(t, "its topics are gone", func() bool { return pub.Subscriptions() == 1 })
	}
	must(t, pub.Send(ctx, []byte("0")))
	received(t, stays, 1)
}

// stuck makes a subscriber that reads nothing, with the publisher's writer
// stuck in the plug.
func stuck(t *testing.T, pub *Pub) *raw {
	t.Helper()
	ctx := testContext(t)
	r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
	r.Send(zmtp.AppendSubscribe(nil, nil))
	r.Sync()
	must(t, pub.Send(ctx, plug))
	eventually(t, "the plug is taken", func() bool {
		for _, p := range pub.Peers() {
			if p.Remote == r.Conn.LocalAddr().String() {
				return p.QueuedMessages == 0
			}
		}
		return false
	})
	r.Begun()
	return r
}

// TestPubHWM: with PolicyDrop a peer's queue holds exactly SendHWM messages, further
// messages are counted, and the queued ones arrive.
func TestPubHWM(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{SendHWM: 10})
	r := stuck(t, pub)
	const n = 25
	for i := range n {
		must(t, pub.Send(ctx, fmt.Append(nil, i)))
	}
	s := pub.Peers()[0]
	if s.QueuedMessages != 10 || s.QueuedBytes != 10*3 || s.Drops != n-10 || !s.Connected || s.Remote != r.Conn.LocalAddr().String() {
		t.Errorf("%+v", s)
	}
	r.Message() // the plug
	for i := range 10 {
		if m := r.Message(); string(m[0]) != fmt.Sprint(i) {
			t.Fatalf("%q instead of %d", m[0], i)
		}
	}
	r.Sync() // and nothing more
	must(t, pub.Send(ctx, []byte("room")))
	if m := r.Message(); string(m[0]) != "room" {
		t.Errorf("%q", m[0])
	}
	eventually(t, "all is counted", func() bool {
		s = pub.Peers()[0]
		return s.QueuedMessages == 0 && s.MessagesOut == 12 && s.Drops == n-10
	})

	// SendWire is checked once a call, and counted by its messages.
	pub = bind(t, NewPub, Options{SendHWM: 10})
	stuck(t, pub)
	five := bytes.Repeat(wire("x"), 5)
	for range 4 {
		must(t, pub.sendWire(ctx, five, 5, nil))
	}
	if s := pub.Peers()[0]; s.QueuedMessages != 10 || s.Drops != 10 {
		t.Errorf("%+v", s)
	}
}

// TestPubHWMBytes: a queue below its bound in bytes takes one message more.
func TestPubHWMBytes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{SendHWM: -1, SendHWMBytes: 1000})
	stuck(t, pub)
	for range 20 {
		must(t, pub.Send(ctx, make([]byte, 98)))
	}
	if s := pub.Peers()[0]; s.QueuedMessages != 10 || s.QueuedBytes != 1000 || s.Drops != 10 {
		t.Errorf("%+v", s)
	}
	pub = bind(t, NewPub, Options{SendHWM: -1, SendHWMBytes: 1})
	stuck(t, pub)
	for range 20 {
		must(t, pub.Send(ctx, make([]byte, 5000)))
	}
	if s := pub.Peers()[0]; s.QueuedMessages != 1 || s.Drops != 19 {
		t.Errorf("%+v", s)
	}
}

// TestPubBlock: nothing is lost, however slow a subscriber is.
func TestPubBlock(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{SendHWM: 3, FullPolicy: PolicyBlock})
	var subs []*Sub
	for i := range 3 {
		subs = append(subs, subscribed(t, Options{RecvHWM: 1 + i}, pub.LastEndpoint(), "a", "b"))
	}
	const n, senders = 2000, 3
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range n {
				if s == 0 {
					l := newLender()
					if err := pub.sendWire(ctx, slices.Concat(wire("b", fmt.Sprint(i)), wire("c", "")), 2, l); err != nil {
						t.Error(err)
					}
				} else if err := pub.Send(ctx, []byte("a"), fmt.Append(nil, s), fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, sub := range subs {
		wg.Go(func() {
			next := map[string]int{}
			for range senders * n {
				m, err := sub.Recv(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				from := string(bytes.Join(m[:len(m)-1], nil))
				if string(m[len(m)-1]) != fmt.Sprint(next[from]) {
					t.Errorf("%q, want %d", m, next[from])
					return
				}
				next[from]++
			}
		})
	}
	wg.Wait()
}

// TestPubBlockEnds: the context ends the wait of Send and SendWire, and then no
// peer gets the message; so do Close and the peer's end.
func TestPubBlockEnds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{SendHWM: 1, FullPolicy: PolicyBlock, Linger: LingerNone})
	r := stuck(t, pub)
	other := subscribed(t, Options{}, pub.LastEndpoint(), "")
	must(t, pub.Send(ctx, []byte("fits")))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := pub.Send(ended, []byte("lost")); !errors.Is(err, context.Canceled) {
		t.Errorf("Send: %v", err)
	}
	if err := pub.sendWire(ended, wire("lost"), 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("SendWire: %v", err)
	}
	// The peer's end lets senders go on.
	results := make(chan error, 2)
	send := func(text string) {
		go func() { results <- pub.Send(ctx, []byte(text)) }()
		go func() { results <- pub.sendWire(ctx, wire(text), 1, nil) }()
		eventually(t, "they wait", func() bool {
			for _, p := range pub.core.Pipes() {
				if p.Out.Status().Waiting == 2 {
					return true
				}
			}
			return false
		})
	}
	send("after")
	r.Conn.Close()
	must(t, <-results)
	must(t, <-results)
	if got := received(t, other, 3); fmt.Sprint(got) != "[fits after after]" {
		t.Errorf("%q", got)
	}
	must(t, other.Close())
	eventually(t, "all have gone", func() bool { return len(pub.Peers()) == 0 })

	stuck(t, pub)
	must(t, pub.Send(ctx, []byte("fits")))
	send("never")
	must(t, pub.Close())
	for range 2 {
		if err := <-results; !errors.Is(err, ErrClosed) {
			t.Errorf("closed while sending: %v", err)
		}
	}
}

// TestPubDisconnect: a subscriber that stops reading costs bounded memory,
// delays no other, is disconnected, and can come back.
func TestPubDisconnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	const limit = 1 << 20
	pub := bind(t, NewPub, Options{SendHWM: -1, SendHWMBytes: limit, FullPolicy: PolicyDisconnect, SendBuffer: 64 << 10, Monitor: seen.Tell})
	healthy := subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "")
	lazy := open(t, NewSub, quick(Options{RecvHWM: 1, RecvBuffer: 64 << 10}))
	must(t, lazy.Subscribe("back"))
	must(t, lazy.Subscribe("n"))
	must(t, lazy.Connect(pub.LastEndpoint()))
	must(t, lazy.WaitSubscribed(ctx))
	for range 2 {
		seen.Await(t, EventHandshakeSucceeded)
	}

	gone := make(chan Event, 1)
	go func() { gone <- seen.Await(t, EventDisconnected) }()
	l := newLender()
	body := string(make([]byte, 10_000))
	sent, most := 0, 0
	var e Event
	for e.Kind != EventDisconnected {
		// The healthy one gets each message before the next is sent: it is not
		// held up for a moment by the other.
		if sent%2 == 0 {
			must(t, pub.Send(ctx, []byte("n"), []byte(body)))
		} else {
			must(t, pub.sendWire(ctx, wire("n", body), 1, l))
		}
		sent++
		_, err := healthy.Recv(ctx)
		must(t, err)
		for _, p := range pub.Peers() {
			most = max(most, p.QueuedBytes)
		}
		select {
		case e = <-gone:
		default:
		}
	}
	if !errors.Is(e.Err, ErrSlowPeer) {
		t.Errorf("disconnected for %v", e.Err)
	}
	if most > limit+20_000 {
		t.Errorf("%d bytes were queued", most)
	}
	// Once it reads again it learns of its disconnection and comes back by
	// itself, with its subscriptions.
	came := make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			m, err := lazy.Recv(ctx)
			if err != nil || string(m[0]) == "back" {
				break
			}
		}
		came <- n
	}()
	must(t, pub.WaitSubscribers(ctx, "back", 2))
	must(t, pub.Send(ctx, []byte("back")))
	if n := <-came; n >= sent {
		t.Errorf("%d messages of %d came", n, sent)
	}
	received(t, healthy, 1)
	within(t, "the lender gets everything back", func() {
		for l.Refs.Load() != 0 {
			<-l.Free
		}
	})
}

// TestPubDropMemory: with PolicyDrop and a subscriber that reads nothing for ever,
// memory stays within the bounds of its queue.
func TestPubDropMemory(t *testing.T) {
	ctx := testContext(t)
	const limit = 1 << 20
	pub := bind(t, NewPub, Options{SendHWM: -1, SendHWMBytes: limit, Linger: LingerNone})
	stuck(t, pub)
	body := make([]byte, 1000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 200_000 { // 200 MB
		must(t, pub.Send(ctx, []byte("n"), body))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > 8*limit {
		t.Errorf("%d bytes are held, the bound is %d", n, limit)
	}
	if s := pub.Peers()[0]; s.Drops == 0 || s.QueuedBytes > limit+2000 {
		t.Errorf("%+v", s)
	}
}

// TestPubWaitSubscriber: Send waits for a subscriber.
func TestPubWaitSubscriber(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{WaitSubscriber: true})
	sub := subscribed(t, Options{}, pub.LastEndpoint(), "other")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := pub.Send(ended, []byte("topic"), []byte("lost")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	const n = 5
	result := make(chan error)
	for i := range n {
		go func() { result <- pub.Send(ctx, []byte("topic"), fmt.Append(nil, i)) }()
	}
	must(t, pub.Send(ctx, []byte("other")))
	received(t, sub, 1)
	must(t, sub.Subscribe("top"))
	for range n {
		must(t, <-result)
	}
	received(t, sub, n)

	go func() { result <- pub.Send(ctx, []byte("nobody")) }()
	must(t, pub.Close())
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Errorf("closed while waiting: %v", err)
	}
}

// TestPubWaitSubscribers: messages sent after it returns arrive at all of them.
func TestPubWaitSubscribers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{})
	must(t, pub.WaitSubscribers(ctx, "x", 0))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := pub.WaitSubscribers(ended, "x", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	var subs []*Sub
	for i := range 5 {
		sub := open(t, NewSub, Options{})
		must(t, sub.Subscribe("topic/"[:1+i]))
		must(t, sub.Connect(pub.LastEndpoint()))
		subs = append(subs, sub)
	}
	must(t, pub.WaitSubscribers(ctx, "topic/1", len(subs)))
	must(t, pub.Send(ctx, []byte("topic/1")))
	for _, sub := range subs {
		received(t, sub, 1)
	}
	result := make(chan error)
	go func() { result <- pub.WaitSubscribers(ctx, "topic/1", 6) }()
	must(t, pub.Close())
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Errorf("closed while waiting: %v", err)
	}
}

// TestSendWire: a lent run goes to subscribers to everything without a copy, to others in
// part, and its owner gets it back when all is written.
func TestSendWire(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{SendHWM: -1})
	all := []*Sub{subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), ""), subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "", "a")}
	some := subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "a", "ab", "c")
	none := subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "none", "end")
	l := newLender()
	const rounds = 20
	var large, small []byte
	messages := 0
	for i := range 1000 {
		large = append(large, wire([]string{"a", "ab", "b", "c"}[i%4], fmt.Sprint(i))...)
		messages++
	}
	small = append(small, wire("a", "small")...)
	for range rounds {
		must(t, pub.sendWire(ctx, large, messages, l))
		must(t, pub.sendWire(ctx, small, 1, l))
		must(t, pub.sendWire(ctx, nil, 0, l))
	}
	must(t, pub.sendWire(ctx, large, messages, nil)) // copied
	must(t, pub.Send(ctx, []byte("end")))
	for _, sub := range all {
		got := received(t, sub, (messages+1)*rounds+messages+1)
		if got[0] != "a 0" || got[messages-1] != "c 999" || got[messages] != "a small" || got[len(got)-1] != "end" {
			t.Errorf("%q...", got[:3])
		}
	}
	got := received(t, some, (messages*3/4+1)*rounds+messages*3/4)
	if got[0] != "a 0" || got[1] != "ab 1" || got[2] != "c 3" || got[messages*3/4] != "a small" {
		t.Errorf("%q...", got[:4])
	}
	if got := received(t, none, 1); got[0] != "end" {
		t.Errorf("%q", got)
	}
	within(t, "the lender gets everything back", func() {
		for l.Refs.Load() != 0 {
			<-l.Free
		}
	})
	// Lent to the two, large runs only.
	if n := l.Retained.Load(); n != 2*rounds {
		t.Errorf("lent %d times, want %d", n, 2*rounds)
	}
}

// TestSendWireReturns: the owner has everything back, and exactly once, however
// connections and sockets end.
func TestSendWireReturns(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	data := wire("a", string(make([]byte, 1<<20)))
	for name, end := range map[string]func(pub *Pub, r *raw){
		"the peer closes": func(_ *Pub, r *raw) { r.Conn.Close() },
		"Close":           func(pub *Pub, _ *raw) { must(t, pub.Close()) },
		"Unbind":          func(pub *Pub, _ *raw) { must(t, pub.Unbind(pub.LastEndpoint())) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pub := bind(t, NewPub, Options{SendHWM: 20, Linger: LingerNone})
			r := stuck(t, pub)
			l := newLender()
			for range 30 {
				must(t, pub.sendWire(ctx, data, 1, l))
			}
			if l.Refs.Load() != 20 {
				t.Errorf("%d references", l.Refs.Load())
			}
			end(pub, r)
			within(t, "the lender gets everything back", func() {
				for l.Refs.Load() != 0 {
					<-l.Free
				}
			})
		})
	}
}

// TestPubConcurrent: senders, and subscribers that come and go, all at once.
func TestPubConcurrent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{SendHWM: 100})
	stop := make(chan struct{})
	var senders, subs sync.WaitGroup
	for s := range 3 {
		senders.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				var err error
				if i%3 == 0 {
					err = pub.sendWire(ctx, slices.Concat(wire("a", "1"), wire("b", "1"), wire("c", "1")), 3, newLender())
				} else {
					err = pub.Send(ctx, []byte{"abc"[i%3]}, []byte("1"))
				}
				if err != nil {
					t.Errorf("sender %d: %v", s, err)
					return
				}
			}
		})
	}
	for i := range 4 {
		subs.Go(func() {
			for range 10 {
				topic := []string{"", "a", "b", "c"}[i]
				sub, err := NewSub(Options{})
				must(t, err)
				must(t, sub.Subscribe(topic))
				must(t, sub.Connect(pub.LastEndpoint()))
				for range 20 {
					m, err := sub.Recv(ctx)
					if err != nil || len(m) != 2 || !strings.HasPrefix(string(m[0]), topic) {
						t.Errorf("%q, %v", m, err)
					}
				}
				must(t, sub.Close())
			}
		})
	}
	subs.Wait()
	close(stop)
	senders.Wait()
	eventually(t, "all have gone", func() bool { return pub.Subscriptions() == 0 && len(pub.Peers()) == 0 })
}

// TestMessageEnd finds the ends of messages, and of none that is not all there.
func TestMessageEnd(t *testing.T) {
	t.Parallel()
	for _, m := range [][]byte{
		wire(""), wire("a", "", "b"), wire(strings.Repeat("l", 300), "s"),
		{zmtp.FlagLong | zmtp.FlagMore, 0, 0, 0, 0, 0, 0, 0, 1, 'x', 0, 0},
	} {
		data := slices.Concat(wire("before"), m, wire("after"))
		at := len(wire("before"))
		if end := queue.MessageEnd(data, at); end != at+len(m) {
			t.Errorf("%q ends at %d, want %d", m, end, at+len(m))
		}
		for cut := range m {
			if end := queue.MessageEnd(m[:cut], 0); end != -1 {
				t.Errorf("%q ends at %d", m[:cut], end)
			}
		}
	}
	for _, huge := range [][]byte{
		{zmtp.FlagLong, 255, 255, 255, 255, 255, 255, 255, 255},
		{zmtp.FlagLong, 0x7F, 255, 255, 255, 255, 255, 255, 255, 'x'},
	} {
		if end := queue.MessageEnd(huge, 0); end != -1 {
			t.Errorf("%x ends at %d", huge, end)
		}
	}
}

func TestPubErrors(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := open(t, NewPub, Options{MaxMessageSize: 100})
	if err := pub.Send(ctx); !errors.Is(err, ErrNoFrames) {
		t.Errorf("no frames: %v", err)
	}
	must(t, pub.Send(ctx, make([]byte, 98)))
	if err := pub.Send(ctx, make([]byte, 50), make([]byte, 47)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

func BenchmarkPubSub(b *testing.B) {
	ctx := testContext(b)
	pub := bind(b, NewPub, Options{FullPolicy: PolicyBlock, SendHWM: -1, SendHWMBytes: 4 << 20})
	sub := subscribed(b, Options{RecvHWM: -1, RecvHWMBytes: 4 << 20}, pub.LastEndpoint(), "")
	f := [][]byte{make([]byte, 14), make([]byte, 8), make([]byte, 16), nil, make([]byte, 32)}
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for range b.N {
			_ = pub.Send(ctx, f...)
		}
	}()
	var batch Batch
	n, batches := 0, 0
	for n < b.N {
		must(b, sub.RecvBatch(ctx, &batch))
		n += batch.Len()
		batches++
	}
	batch.Release()
	b.ReportMetric(float64(n)/float64(batches), "msgs/batch")
}
