package sockets

import (
	"testing"
	"time"

	"clustermap/zmtp"
)

// Times of fanout.Publisher.Fullest: between two looks, and for an unknown peer.
const (
	fullestWindow = 20 * time.Millisecond
	fullestCredit = 300 * time.Millisecond
)

// A subscriber that reads too slowly shows in Fullest, and one that does not read
// does not: no publisher is to wait for it.
func TestFullestOfThoseWhoRead(t *testing.T) {
	t.Parallel()
	const bound = 64 << 20
	pub := bind(t, NewPub, Options{SendHWM: -1, SendHWMBytes: bound, FullPolicy: PolicyDisconnect, SendBuffer: 64 << 10})
	ctx := testContext(t)
	wire := zmtp.AppendMessage(nil, []byte("a"), make([]byte, 1<<20))

	stops := stuck(t, pub) // its writer has taken the plug
	for range 40 {
		must(t, pub.sendWire(ctx, wire, 1, nil))
	}
	eventually(t, "who does not read does not count", func() bool { return pub.Fullest() == 0 })
	stops.Conn.Close()
	eventually(t, "it has gone", func() bool { return len(pub.Peers()) == 0 })

	r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
	r.Send(zmtp.AppendSubscribe(nil, nil))
	r.Sync()
	must(t, pub.sendWire(ctx, zmtp.AppendMessage(nil, []byte("a"), plug), 1, nil))
	eventually(t, "the writer is busy", func() bool { return pub.Peers()[0].QueuedMessages == 0 })
	for range 40 {
		must(t, pub.sendWire(ctx, wire, 1, nil))
	}
	b := make([]byte, 1<<20)
	most := 0.0
	eventually(t, "who reads counts", func() bool {
		must(t, r.Conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := r.Conn.Read(b)
		must(t, err)
		time.Sleep(fullestWindow)
		most = max(most, pub.Fullest())
		return most > 0.5
	})
	if most > 1 {
		t.Errorf("%v full", most)
	}
}

// TestFullestInproc: a subscriber of the same process that takes its messages counts as
// one that reads, for longer than an unknown one does.
func TestFullestInproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	names := new(Inproc)
	pub := open(t, NewPub, Options{SendHWM: -1, SendHWMBytes: 1 << 20, Inproc: names})
	must(t, pub.Bind(ctx, "inproc://x"))
	sub := subscribed(t, Options{RecvHWM: -1, RecvHWMBytes: -1, Inproc: names}, "inproc://x", "")
	body := make([]byte, 64<<10)
	for begin := time.Now(); ; {
		for range 8 {
			must(t, pub.Send(ctx, body))
		}
		full := pub.Fullest()
		switch past := time.Since(begin); {
		case past > 2*fullestCredit && full > 0:
			return
		case past > hang: // not at the first look, before which we may have paused for long
			t.Fatal("who takes all does not count")
		}
		received(t, sub, 8) // all that was queued
		time.Sleep(fullestWindow)
	}
}
