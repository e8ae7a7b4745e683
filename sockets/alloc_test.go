package sockets

import (
	"bytes"
	"runtime"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/queue"
	"clustermap/internal/testenv"
)

// noAllocs holds that f, once warm, allocates nothing, in any goroutine. Such tests are
// not parallel: the count is the whole process's.
func noAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testenv.Allocs(200, 1000, f); n != 0 {
		t.Errorf("%s allocates %v times", what, n)
	}
}

// takeAll receives messages until there were n.
func takeAll(t *testing.T, recv func(*Batch) error, b *Batch, n int) {
	t.Helper()
	for n > 0 {
		must(t, recv(b))
		n -= b.Len()
	}
	if n < 0 {
		t.Fatal("more messages came than were sent")
	}
}

// payload is a message of five frames, as CHP's are.
var payload = [][]byte{[]byte("/key/of/fourteen"), make([]byte, 8), make([]byte, 16), nil, make([]byte, 32)}

func TestAllocPub(t *testing.T) {
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{SendHWM: -1})
	all := subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "")
	more := subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "")
	some := subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "/key", "/key/of", "x")
	none := subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "other")
	_ = none
	var a, m, s Batch
	defer a.Release()
	defer m.Release()
	defer s.Release()
	recvAll := func(b *Batch) error { return all.RecvBatch(ctx, b) }
	recvMore := func(b *Batch) error { return more.RecvBatch(ctx, b) }
	recvSome := func(b *Batch) error { return some.RecvBatch(ctx, b) }
	for _, n := range []int{1, 100} {
		noAllocs(t, "Send", func() {
			for range n {
				must(t, pub.Send(ctx, payload...))
			}
			takeAll(t, recvAll, &a, n)
			takeAll(t, recvMore, &m, n)
			takeAll(t, recvSome, &s, n)
		})
	}
	elsewhere := [][]byte{[]byte("else"), make([]byte, 100)}
	noAllocs(t, "Send to those who follow the log", func() {
		must(t, pub.Send(ctx, elsewhere...))
		takeAll(t, recvAll, &a, 1)
		takeAll(t, recvMore, &m, 1)
	})
	one := wire("/key", "value")
	other := wire("else", "value")
	mixed := bytes.Repeat(append(append(one, one...), other...), 200)
	var spans []buf.Span
	for at := 0; at < len(mixed); {
		end := queue.MessageEnd(mixed, at)
		spans = append(spans, buf.Span{Start: uint32(at), End: uint32(end)})
		at = end
	}
	l := newLender()
	noAllocs(t, "SendWire and SendSpans", func() {
		must(t, pub.sendWire(ctx, mixed, 600, l)) // lent
		must(t, pub.sendWire(ctx, one, 1, l))     // copied
		must(t, hooks.SendSpans(ctx, pub, mixed, spans, l))
		takeAll(t, recvAll, &a, 1201)
		takeAll(t, recvMore, &m, 1201)
		takeAll(t, recvSome, &s, 801)
	})
	if l.Retained.Load() == 0 {
		t.Error("nothing was lent")
	}
}

func TestAllocDealerRouter(t *testing.T) {
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{SendHWM: -1, RecvHWM: -1, Mandatory: true})
	dealer := open(t, NewDealer, Options{SendHWM: -1, RecvHWM: -1, Identity: []byte("me")})
	must(t, dealer.Connect(router.LastEndpoint()))
	var atRouter, atDealer Batch
	defer atRouter.Release()
	defer atDealer.Release()
	recvRouter := func(b *Batch) error { return router.RecvBatch(ctx, b) }
	recvDealer := func(b *Batch) error { return dealer.RecvBatch(ctx, b) }
	named := append([][]byte{[]byte("me")}, payload...)
	many := bytes.Repeat(wire("x", "y"), 1000)
	l := newLender()
	for _, n := range []int{1, 100} {
		noAllocs(t, "Dealer.Send and Router.RecvBatch", func() {
			for range n {
				must(t, dealer.Send(ctx, payload...))
			}
			takeAll(t, recvRouter, &atRouter, n)
		})
		peer := atRouter.Peer()
		noAllocs(t, "Router.Send and Dealer.RecvBatch", func() {
			for range n {
				must(t, router.Send(ctx, named...))
				must(t, router.SendTo(ctx, peer, payload...))
			}
			takeAll(t, recvDealer, &atDealer, 2*n)
		})
		noAllocs(t, "Router.SendWire", func() {
			must(t, router.sendWire(ctx, peer, many, 1000, l))
			must(t, router.sendWire(ctx, peer, many[:6], 1, l))
			takeAll(t, recvDealer, &atDealer, 1001)
		})
	}
}

// TestAllocLarge: messages larger than a chunk reuse pooled buffers as well.
func TestAllocLarge(t *testing.T) {
	ctx := testContext(t)
	dealer := bind(t, NewDealer, Options{})
	other := open(t, NewDealer, Options{})
	must(t, other.Connect(dealer.LastEndpoint()))
	body := make([]byte, 900_000)
	var b Batch
	defer b.Release()
	recv := func(b *Batch) error { return dealer.RecvBatch(ctx, b) }
	noAllocs(t, "a message of 900 kB", func() {
		must(t, other.Send(ctx, body))
		takeAll(t, recv, &b, 1)
	})
}

// TestAllocRecv: an owned message costs two allocations, with any frames.
func TestAllocRecv(t *testing.T) {
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect(router.LastEndpoint()))
	f := func() {
		must(t, dealer.Send(ctx, payload...))
		_, err := router.Recv(ctx)
		must(t, err)
	}
	f()
	if n := testenv.Allocs(0, 1000, f); n > 2 {
		t.Errorf("Recv allocates %v times", n)
	}
}

// TestAllocRecvRun: of messages that have come together, many share two allocations.
func TestAllocRecvRun(t *testing.T) {
	ctx := testContext(t)
	for _, c := range []struct {
		body string
		most float64 // allocations for a hundred messages
	}{{"x", 4}, {string(make([]byte, 256)), 10}, {string(make([]byte, 1024)), 40}} {
		router := bind(t, NewRouter, Options{})
		dealer := open(t, NewDealer, Options{})
		must(t, dealer.Connect(router.LastEndpoint()))
		f := func() {
			for range 100 {
				must(t, dealer.Send(ctx, []byte(c.body)))
			}
			for range 100 {
				m, err := router.Recv(ctx)
				must(t, err)
				if len(m) != 2 || len(m[1]) != len(c.body) {
					t.Fatalf("%q", m)
				}
			}
		}
		// They need not all come together.
		if n := testenv.Allocs(20, 200, f); n > 2*c.most {
			t.Errorf("a hundred messages of %d bytes cost %v allocations, want %v", len(c.body), n, c.most)
		}
	}
}

// TestAllocRecvInto: RecvInto allocates nothing when the message has been as large before.
func TestAllocRecvInto(t *testing.T) {
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect(router.LastEndpoint()))
	large := make([]byte, 100_000)
	var m Message
	noAllocs(t, "Router.RecvInto", func() {
		for range 10 {
			must(t, dealer.Send(ctx, payload...))
			must(t, dealer.Send(ctx, large))
			must(t, dealer.Send(ctx, []byte("x")))
		}
		for range 30 {
			must(t, router.RecvInto(ctx, &m))
		}
	})
	rep := bind(t, NewRep, Options{})
	req := open(t, NewReq, Options{})
	must(t, req.Connect(rep.LastEndpoint()))
	var asked, answer Message
	noAllocs(t, "Req.RecvInto and Rep.RecvInto", func() {
		must(t, req.Send(ctx, payload...))
		must(t, rep.RecvInto(ctx, &asked))
		must(t, rep.Send(ctx, asked...))
		must(t, req.RecvInto(ctx, &answer))
	})
	if len(answer) != len(payload) {
		t.Errorf("%q", answer)
	}
}

// TestAllocRecvLarge: the memory of large messages that the application has dropped serves
// for those that follow.
func TestAllocRecvLarge(t *testing.T) {
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	const size, rounds, messages = 64 << 10, 40, 50
	body := make([]byte, size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		for range messages {
			must(t, push.Send(ctx, body))
			m, err := pull.Recv(ctx)
			must(t, err)
			if len(m) != 1 || len(m[0]) != size {
				t.Fatalf("%d frames, the first of %d bytes", len(m), len(m[0]))
			}
		}
		runtime.GC()
	}
	runtime.ReadMemStats(&after)
	// The race detector drops what goes into pools, at random.
	if n := after.TotalAlloc - before.TotalAlloc; n > rounds*messages*size/2 && !testenv.RaceDetector {
		t.Errorf("%d messages of 64 KiB cost %d bytes", rounds*messages, n)
	}
}
