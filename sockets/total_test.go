package sockets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/engine"
	"clustermap/zmtp"
)

// A ROUTER whose peers do not read keeps within the bound on all queues together, which is
// far below the sum of the bounds on each: the peer that is furthest behind is
// disconnected. The peer that reads loses nothing.
func TestRouterQueuesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const n, limit, size = 10, 4 << 20, 100_000
	var gone atomic.Int32
	router := bind(t, NewRouter, Options{
		SendHWM: -1, SendTotalBytes: limit, SendBuffer: 64 << 10,
		Monitor: func(e Event) {
			if e.Kind == EventDisconnected && errors.Is(e.Err, ErrSlowPeer) {
				gone.Add(1)
			}
		},
	})
	peers := make([]*Peer, n)
	for i := range peers {
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
		r.Send(zmtp.AppendMessage(nil, []byte("hello")))
		var b Batch
		must(t, router.RecvBatch(ctx, &b))
		peers[i] = b.Peer()
		b.Release()
	}
	healthy := open(t, NewDealer, Options{})
	must(t, healthy.Connect(router.LastEndpoint()))
	must(t, healthy.Send(ctx, []byte("hello")))
	var b Batch
	must(t, router.RecvBatch(ctx, &b))
	reader := b.Peer()
	b.Release()

	body := make([]byte, size)
	wire := zmtp.AppendMessage(nil, body)
	most := 0
	for end := time.Now().Add(hang); gone.Load() < n; {
		for _, p := range peers {
			if err := router.sendWire(ctx, p, wire, 1, nil); err != nil && !errors.Is(err, ErrUnroutable) {
				t.Fatal(err)
			}
		}
		must(t, router.SendTo(ctx, reader, body))
		_, err := healthy.Recv(ctx)
		must(t, err)
		sum := 0
		for _, p := range router.Peers() {
			sum += p.QueuedBytes
		}
		most = max(most, sum)
		if time.Now().After(end) {
			t.Fatalf("%d of %d that do not read are still there", n-gone.Load(), n)
		}
	}
	if most > limit+limit/engine.TotalStep+(n+1)*size {
		t.Errorf("%d bytes were queued, bound %d", most, limit)
	}
}

// Clients of a REP and of a ROUTER that do not read their replies keep within one bound
// together, also if the program has set none: each of them alone could have SendHWMBytes.
func TestUnreadRepliesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const n, limit, size = 10, 4 << 20, 100_000
	here, cut := context.WithCancel(ctx) // until a client is disconnected
	defer cut()
	rep := bind(t, NewRep, Options{
		SendHWM: Unlimited, SendBuffer: 64 << 10,
		Monitor: func(e Event) {
			if e.Kind == EventDisconnected && errors.Is(e.Err, ErrSlowPeer) {
				cut()
			}
		},
	})
	router := bind(t, NewRouter, Options{})
	if a, b := rep.Options().SendTotalBytes, router.Options().SendTotalBytes; a != DefaultSendTotal || b != DefaultSendTotal {
		t.Errorf("bounds %d and %d by default, want %d", a, b, DefaultSendTotal)
	}
	must(t, rep.SetOptions(func(o *Options) { o.SendTotalBytes = limit }))
	clients := make([]*raw, n)
	for i := range clients {
		clients[i] = dialRaw(t, rep.LastEndpoint()).Greet("REQ", nil)
	}
	body := make([]byte, size)
	for here.Err() == nil {
		for _, c := range clients {
			_, _ = c.Conn.Write(wire("", "hello")) // it may have been disconnected
		}
		for range clients {
			if _, err := rep.Recv(here); err != nil && here.Err() != nil {
				break // the requests of the one that was disconnected may be lost
			} else if err != nil {
				t.Fatal(err)
			}
			must(t, rep.Send(ctx, body))
		}
		sum := 0
		for _, p := range rep.Peers() {
			sum += p.QueuedBytes
		}
		if sum > limit+limit/engine.TotalStep+(n+1)*size {
			t.Fatalf("%d bytes are queued, bound %d", sum, limit)
		}
	}
	honest := open(t, NewReq, Options{})
	must(t, honest.Connect(rep.LastEndpoint()))
	must(t, honest.Send(ctx, []byte("honest")))
	for asked := ""; asked != "honest"; {
		m, err := rep.Recv(ctx)
		must(t, err)
		asked = string(m[0])
		must(t, rep.Send(ctx, body))
	}
	_, err := honest.Recv(ctx)
	must(t, err)
}

// heldBy returns the bytes that a socket holds for its peers.
func heldBy(s *engine.Socket) (sum int) {
	for _, p := range s.Pipes() {
		sum += p.Out.Status().Held()
	}
	return sum
}

// A PUSH whose peers do not read keeps within the bound on all queues together, which is
// far below the sum of the bounds on each: senders wait. A peer that reads goes on getting
// messages meanwhile, nobody is disconnected, and every message arrives in the end.
func TestPushQueuesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10_000, 1 << 20} { // small ones, and ones larger than a share
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			const n, limit = 10, 4 << 20
			push := bind(t, NewPush, Options{SendHWM: Unlimited, SendTotalBytes: limit, SendBuffer: 128 << 10})
			idle := make([]*raw, n)
			for i := range idle {
				idle[i] = dialRaw(t, push.LastEndpoint()).Greet("PULL", nil)
			}
			must(t, push.WaitPeers(ctx, n))
			body := make([]byte, size)
			sent := 0
			fill := func() {
				for push.TrySend(body) == nil {
					sent++
					if held := heldBy(&push.core); held > limit+limit/engine.TotalStep+2*size {
						t.Fatalf("%d bytes are queued, bound %d", held, limit)
					}
				}
			}
			fill()
			var received atomic.Int64
			got := make(chan struct{}, 1)
			arrived := func() {
				received.Add(1)
				select {
				case got <- struct{}{}:
				default:
				}
			}
			pull := dialled(t, NewPull, Options{}, push.LastEndpoint())
			go func() {
				for {
					if _, err := pull.Recv(context.Background()); err != nil {
						return // the end of the test
					}
					arrived()
				}
			}()
			must(t, push.WaitPeers(ctx, n+1))
			if size < limit/2/n {
				for range 2 * limit / size { // more than could wait
					must(t, push.Send(ctx, body))
					sent++
				}
			}
			fill()
			for _, r := range idle {
				go func() {
					for {
						if _, _, err := r.ReadFrame(); err != nil {
							return // the end of the test
						}
						arrived()
					}
				}()
			}
			for range n { // one that waits for room gets it
				must(t, push.Send(ctx, body))
				sent++
			}
			for received.Load() < int64(sent) {
				select {
				case <-got:
				case <-ctx.Done():
					t.Fatalf("%d of %d messages have arrived", received.Load(), sent)
				}
			}
		})
	}
}

// Publishers that connect to a SUB and do not read keep within one bound together,
// however many topics it subscribes to: each is sent all of them. One that reads gets
// every topic, if it comes again.
func TestSubscriptionsToPublishersAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const n, limit, topics, size = 50, 4 << 20, 1000, 1000
	sub := bind(t, NewSub, Options{SendTotalBytes: limit, SendBuffer: 16 << 10})
	for i := range topics {
		must(t, sub.Subscribe(fmt.Sprintf("%0*d", size, i)))
	}
	for range n {
		dialRaw(t, sub.LastEndpoint()).Greet("PUB", nil)
		// What the writer of a connection that has to give way has taken counts until it ends.
		eventually(t, "the queues are within their bound", func() bool {
			return heldBy(&sub.core) <= limit+limit/engine.TotalStep+2*topics*size
		})
	}
	// While it has read nothing its queue is as long as any, so it may have to give way: then
	// it comes again, as a socket does.
	eventually(t, "one that reads has every topic", func() bool {
		reader := dialRaw(t, sub.LastEndpoint()).Greet("PUB", nil)
		for i := range topics {
			_, body, err := reader.ReadFrame()
			if err != nil {
				return false
			}
			c, err := zmtp.ParseCommand(body)
			if err != nil || string(c.Data) != fmt.Sprintf("%0*d", size, i) {
				t.Fatalf("subscription %d is %.20q: %v", i, body, err)
			}
		}
		return true
	})
}

// Subscriptions that give way while a SUB queues them for a new connection end that
// connection: a publisher never stays that has only some of them.
func TestSubscriptionsThatGiveWayEndTheirConnection(t *testing.T) {
	t.Parallel()
	const topics, size = 1000, 1000
	sub := bind(t, NewSub, Options{SendTotalBytes: topics * size / 2})
	for i := range topics {
		must(t, sub.Subscribe(fmt.Sprintf("%0*d", size, i)))
	}
	publisher := dialRaw(t, sub.LastEndpoint()).Greet("PUB", nil)
	for {
		_, _, err := publisher.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection is still there")
		}
		if err != nil {
			return
		}
	}
}

// The peers of a STREAM that do not read keep within one bound together.
func TestStreamQueuesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const n, limit, size = 10, 4 << 20, 100_000
	stream := bind(t, NewStream, Options{SendHWM: Unlimited, SendTotalBytes: limit, SendBuffer: 16 << 10})
	var peers []*Peer
	for range n {
		dialRaw(t, stream.LastEndpoint())
		_, peer, err := stream.RecvFrom(ctx)
		must(t, err)
		peers = append(peers, peer)
	}
	for gone := 0; gone < n; {
		gone = 0
		for _, p := range peers {
			switch err := stream.SendTo(ctx, p, make([]byte, size)); {
			case errors.Is(err, ErrUnroutable):
				gone++
			case err != nil:
				t.Fatal(err)
			}
		}
		// What the writer of a connection that has to give way has taken counts until it ends.
		eventually(t, "the queues are within their bound", func() bool {
			return heldBy(&stream.core) <= limit+limit/engine.TotalStep+(n+1)*size
		})
	}
}

// A send call that waits for a PUSH's queues together goes on when they may be longer.
func TestSendTotalOfPushChanges(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const n, size = 3, 100_000
	push := bind(t, NewPush, Options{SendHWM: Unlimited, SendTotalBytes: 1 << 20, SendBuffer: 16 << 10})
	for range n {
		dialRaw(t, push.LastEndpoint()).Greet("PULL", nil)
	}
	must(t, push.WaitPeers(ctx, n))
	body := make([]byte, size)
	for range 2 {
		for push.TrySend(body) == nil { // the writers may yet take a part
		}
	}
	sent := make(chan error)
	go func() {
		for range 1000 {
			if err := push.Send(ctx, body); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	must(t, push.SetOptions(func(o *Options) { o.SendTotalBytes = 2000 * size; o.SendHWMBytes = 1000 * size }))
	must(t, <-sent)
	must(t, push.SetOptions(func(o *Options) { o.SendTotalBytes = 1 << 20 }))
	if err := push.TrySend(body); err != ErrWouldBlock {
		t.Errorf("with a lower bound: %v", err)
	}
}
