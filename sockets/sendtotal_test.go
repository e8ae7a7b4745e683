package sockets

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"clustermap/zmtp"
)

// With PolicyDisconnect subscribers that do not read are disconnected one after
// the other, long before each of them has filled its own queue, and the one that
// reads stays.
func TestStuckSubscribersAreDisconnected(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const n, total = 10, 4 << 20
	var gone atomic.Int32
	pub := bind(t, NewPub, Options{
		SendHWM: -1, SendTotalBytes: total, FullPolicy: PolicyDisconnect, SendBuffer: 64 << 10,
		Monitor: func(e Event) {
			if e.Kind == EventDisconnected && errors.Is(e.Err, ErrSlowPeer) {
				gone.Add(1)
			}
		},
	})
	healthy := subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "all/", "own/healthy/")
	for i := range n {
		r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
		r.Send(zmtp.AppendSubscribe(nil, []byte("all/")), zmtp.AppendSubscribe(nil, fmt.Appendf(nil, "own/%d/", i)))
		r.Sync()
	}
	wire := zmtp.AppendMessage(nil, []byte("all/"), make([]byte, 100_000))
	most := 0
	for gone.Load() < n {
		must(t, pub.sendWire(ctx, wire, 1, nil))
		_, err := healthy.Recv(ctx)
		must(t, err)
		sum := 0
		for _, p := range pub.Peers() {
			sum += p.QueuedBytes
		}
		most = max(most, sum)
	}
	if most > 2*total {
		t.Errorf("%d bytes were queued, bound %d", most, total)
	}
	must(t, pub.Send(ctx, []byte("all/"), []byte("end")))
	received(t, healthy, 1)
	if gone.Load() != n {
		t.Errorf("%d connections ended, want %d", gone.Load(), n)
	}
}
