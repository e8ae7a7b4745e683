package sockets

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"clustermap/zmtp"
)

// apartPeers gives each of the peers topics of its own, beside one that all have.
func apartPeers(t *testing.T, pub *Pub, peers []*pipe) {
	t.Helper()
	pub.subs.Lock()
	defer pub.subs.Unlock()
	for i, q := range peers {
		pub.subs.cancel(q, nil)
		for _, topic := range []string{"all/", fmt.Sprintf("own/%d/", i)} {
			_, err := pub.subs.subscribe(q, []byte(topic), unbounded)
			must(t, err)
		}
	}
}

// The queues of all peers together stay within their bound, in groups of their own or
// not, and a peer that reads loses nothing by it.
func TestH21_QueuesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const n, total, size = 20, 1 << 20, 10_000
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own topics %v", own), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			pub, peers := fanned(t, n, Options{SendHWM: -1, SendTotalBytes: total})
			if own {
				apartPeers(t, pub, peers)
			}
			healthy := peers[n/2]
			body := make([]byte, size)
			var most int64
			for i := range 1000 {
				if i%2 == 0 {
					must(t, pub.Send(ctx, []byte("all/"), body))
				} else {
					must(t, pub.SendWire(ctx, zmtp.AppendMessage(nil, []byte("all/"), body), 1, nil))
				}
				drain(healthy)
				pub.subs.Lock()
				sum, _ := pub.reckon()
				pub.subs.Unlock()
				most = max(most, sum)
			}
			if slack := int64(total/totalStep + n*(size+100)); most > total+slack {
				t.Errorf("%d bytes were queued for all, bound %d", most, total)
			}
			if most < total/2 {
				t.Errorf("%d bytes were queued for all: too few for a bound of %d", most, total)
			}
			if s := healthy.stats(); s.Drops != 0 {
				t.Errorf("the one that takes all has lost %d messages", s.Drops)
			}
			lost := 0
			for _, q := range peers {
				if q.stats().Drops > 0 {
					lost++
				}
			}
			if lost != n-1 {
				t.Errorf("%d of %d that take nothing have lost messages", lost, n-1)
			}
		})
	}
}

// With PolicyDisconnect subscribers that do not read are disconnected one after
// the other, long before each of them has filled its own queue, and the one that
// reads stays.
func TestH21_StuckSubscribersAreDisconnected(t *testing.T) {
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
		r := dialRaw(t, pub.LastEndpoint()).greet("SUB", nil)
		r.send(zmtp.AppendSubscribe(nil, []byte("all/")), zmtp.AppendSubscribe(nil, fmt.Appendf(nil, "own/%d/", i)))
		r.sync()
	}
	wire := zmtp.AppendMessage(nil, []byte("all/"), make([]byte, 100_000))
	most := 0
	for gone.Load() < n {
		must(t, pub.SendWire(ctx, wire, 1, nil))
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

// Messages that subscribers with topics of their own all get are copied once for all of
// them.
func TestH21_OneCopyForAllGroups(t *testing.T) {
	const n, batches, size = 30, 64, 100_000
	ctx := testContext(t)
	pub, peers := fanned(t, n, Options{SendHWM: -1, FullPolicy: PolicyDisconnect})
	apartPeers(t, pub, peers)
	var wire []byte
	for len(wire) < size {
		wire = zmtp.AppendMessage(wire, []byte("all/"), make([]byte, 1000))
	}
	messages := len(wire) / len(zmtp.AppendMessage(nil, []byte("all/"), make([]byte, 1000)))
	// Something in front that is for one of them alone.
	own := zmtp.AppendMessage(nil, []byte("own/3/"), make([]byte, 5000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range batches {
		must(t, pub.SendWire(ctx, append(own[:len(own):len(own)], wire...), messages+1, nil))
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*batches*size {
		t.Errorf("%d batches of %d bytes for %d peers took %d bytes", batches, size, n, grown)
	}
	for i, q := range peers {
		want := wire
		if i == 3 {
			want = append(own[:len(own):len(own)], wire...)
		}
		if got := drain(q); len(got) != batches*len(want) || string(got[:len(want)]) != string(want) {
			t.Fatalf("peer %d has %d bytes, want %d batches of %d", i, len(got), batches, len(want))
		}
	}
}

// TestSendTotalCounts: the sum of the queues does not overflow where an int has 32 bits:
// neither with bytes that many peers share, which count for each, nor with the bound
// itself, whose default is not taken for no bound there.
func TestSendTotalCounts(t *testing.T) {
	t.Parallel()
	const n = 40
	pub, peers := fanned(t, n, Options{SendHWM: -1, SendHWMBytes: -1, FullPolicy: PolicyDisconnect})
	apartPeers(t, pub, peers)
	wire := zmtp.AppendMessage(nil, []byte("all/"), make([]byte, 64<<20))
	must(t, pub.SendWire(testContext(t), wire, 1, nil))
	pub.subs.Lock()
	sum, _ := pub.reckon()
	pub.subs.Unlock()
	if limit := int64(pub.opts().SendTotalBytes); sum > limit || sum < limit/2 {
		t.Errorf("%d bytes are queued, bound %d", sum, limit)
	}
}
