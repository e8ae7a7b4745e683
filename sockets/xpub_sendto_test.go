package sockets

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"clustermap/internal/hooks"
	"clustermap/internal/queue"
	"clustermap/internal/testenv"
)

// TestSendTo: a message to one peer reaches no other, in order with messages to
// all, whether these share a log or not; its owner is released when it has been written,
// also if it is small.
func TestSendTo(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, endpoint := range []string{anyPort, "inproc://send-wire-to"} {
		t.Run(strings.SplitN(endpoint, ":", 2)[0], func(t *testing.T) {
			t.Parallel()
			pub := open(t, NewXPub, Options{XPubManual: true})
			must(t, pub.Bind(ctx, endpoint))
			const subscribers = 3
			var subs []*Sub
			var peers []*Peer
			var b Batch
			defer b.Release()
			for range subscribers {
				sub := open(t, NewSub, Options{RecvHWM: -1})
				must(t, sub.Connect(pub.LastEndpoint()))
				must(t, sub.Subscribe(""))
				must(t, pub.RecvBatch(ctx, &b))
				must(t, pub.SubscribePeer(b.Peer(), ""))
				subs, peers = append(subs, sub), append(peers, b.Peer())
			}
			want := make([][]string, subscribers)
			var owners []*testenv.Lender
			for n := range 300 {
				says(t, pub, fmt.Sprint("all ", n))
				for i := range want {
					want[i] = append(want[i], fmt.Sprint("all ", n))
				}
				i := n % subscribers
				text := fmt.Sprint("one ", n)
				if n%7 == 0 {
					text += strings.Repeat(".", 2*queue.LendFrom)
				}
				l := newLender()
				owners = append(owners, l)
				must(t, hooks.SendTo(pub, peers[i], append(wire(text), wire("next")...), 2, l))
				want[i] = append(want[i], text, "next")
				if n%5 == 0 {
					must(t, hooks.SendTo(pub, peers[i], wire("copied"), 1, nil))
					want[i] = append(want[i], "copied")
				}
			}
			for i, sub := range subs {
				wants(t, sub, want[i]...)
			}
			for n, l := range owners {
				if l.Retained.Load() == 0 {
					t.Fatalf("%d was not lent", n)
				}
				<-l.Free
			}
		})
	}
}

// TestSendToFull: a full queue does not hold it back, and it counts for
// the high-water mark of later messages.
func TestSendToFull(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewXPub, Options{XPubManual: true, SendHWM: 10, SendHWMBytes: 1 << 20, FullPolicy: PolicyDisconnect, SendBuffer: 8 << 10})
	r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
	r.Send(wire("\x01"))
	var b Batch
	defer b.Release()
	must(t, pub.RecvBatch(ctx, &b))
	peer := b.Peer()
	must(t, pub.SubscribePeer(peer, ""))

	big := wire(string(make([]byte, 1<<20)))
	l := newLender()
	for range 64 { // far more than the system's buffers hold
		must(t, hooks.SendTo(pub, peer, big, 1, l))
	}
	// The writer has taken some of them, which do not count as queued any more.
	if n := l.Refs.Load(); n < 32 {
		t.Fatalf("%d of 64 messages are queued or being written", n)
	}
	says(t, pub, "more than the peer may have")
	eventually(t, "the peer is given up", func() bool {
		err := hooks.SendTo(pub, peer, big, 1, l)
		return errors.Is(err, ErrUnroutable)
	})
	eventually(t, "all is returned", func() bool { return l.Refs.Load() == 0 })
}

// TestSendToRefusals: a peer that has gone, none, or another socket's.
func TestSendToRefusals(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewXPub, Options{})
	r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
	r.Send(wire("\x01a"))
	var b Batch
	defer b.Release()
	must(t, pub.RecvBatch(ctx, &b))
	peer := b.Peer()
	// Without XPubManual, too, and under a topic that the peer did not ask for.
	must(t, hooks.SendTo(pub, peer, wire("b"), 1, nil))
	if m := r.Message(); string(m[0]) != "b" {
		t.Errorf("got %q", m)
	}
	must(t, hooks.SendTo(pub, peer, nil, 0, nil))
	if err := hooks.SendTo(pub, (*Peer)(nil), wire("b"), 1, nil); !errors.Is(err, ErrForeignPeer) {
		t.Errorf("to nobody: %v", err)
	}
	if err := hooks.SendTo(open(t, NewXPub, Options{}), peer, wire("b"), 1, nil); !errors.Is(err, ErrForeignPeer) {
		t.Errorf("to another socket's peer: %v", err)
	}
	r.Conn.Close()
	l := newLender()
	eventually(t, "the peer has gone", func() bool {
		return errors.Is(hooks.SendTo(pub, peer, wire("b"), 1, l), ErrUnroutable)
	})
	eventually(t, "all is returned", func() bool { return l.Refs.Load() == 0 })
	must(t, pub.Close())
	if err := hooks.SendTo(pub, peer, wire("b"), 1, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
