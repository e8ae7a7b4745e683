package sockets

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

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
		r := dialRaw(t, router.LastEndpoint()).greet("DEALER", nil)
		r.send(zmtp.AppendMessage(nil, []byte("hello")))
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
			if err := router.SendWire(ctx, p, wire, 1, nil); err != nil && !errors.Is(err, ErrUnroutable) {
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
	if most > limit+limit/totalStep+(n+1)*size {
		t.Errorf("%d bytes were queued, bound %d", most, limit)
	}
}

// Clients of a REP and of a ROUTER that do not read their replies keep within one bound
// together, also if the program has set none: each of them alone could have SendHWMBytes.
func TestUnreadRepliesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const n, limit, size = 10, 4 << 20, 100_000
	var gone atomic.Int32
	rep := bind(t, NewRep, Options{
		SendHWM: Unlimited, SendBuffer: 64 << 10,
		Monitor: func(e Event) {
			if e.Kind == EventDisconnected && errors.Is(e.Err, ErrSlowPeer) {
				gone.Add(1)
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
		clients[i] = dialRaw(t, rep.LastEndpoint()).greet("REQ", nil)
	}
	body := make([]byte, size)
	for gone.Load() == 0 {
		for _, c := range clients {
			_, _ = c.conn.Write(wire("", "hello")) // it may have been disconnected
		}
		for range clients {
			if gone.Load() > 0 {
				break
			}
			_, err := rep.Recv(ctx)
			must(t, err)
			must(t, rep.Send(ctx, body))
		}
		sum := 0
		for _, p := range rep.Peers() {
			sum += p.QueuedBytes
		}
		if sum > limit+limit/totalStep+(n+1)*size {
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
