package sockets

import (
	"fmt"
	"testing"

	"clustermap/internal/queue"
)

// TestLibzmq_conflate: only the last message is received, with the option on either side.
func TestLibzmq_conflate(t *testing.T) {
	t.Parallel()
	t.Run("PULL", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		pull := bind(t, NewPull, Options{Conflate: true, RecvHWM: 1})
		r := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
		for i := range 100 {
			r.Send(wire(fmt.Sprint(i), "two frames"))
		}
		eventually(t, "all have come", func() bool {
			peers := pull.Peers()
			return len(peers) == 1 && peers[0].Discarded == 99
		})
		wantRecv(t, func() (Message, error) { return pull.Recv(ctx) }, "99", "two frames")
		if _, err := pull.TryRecv(); err != ErrWouldBlock {
			t.Errorf("%v", err)
		}
	})
	t.Run("PUSH", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		endpoint, accept := listenRaw(t)
		push := open(t, NewPush, quick(Options{Conflate: true, SendHWM: 1, Linger: LingerNone}))
		must(t, push.Connect(endpoint))
		last := func(want ...string) {
			t.Helper()
			if p := push.Peers()[0]; p.QueuedMessages != 1 || p.QueuedBytes != len(wire(want...)) {
				t.Errorf("%d messages of %d bytes in place of %q", p.QueuedMessages, p.QueuedBytes, want)
			}
		}
		l := newLender()
		for range 3 {
			must(t, push.Send(ctx, []byte("old"), make([]byte, 1000)))
			must(t, push.Send(ctx, []byte("new"), []byte("whole")))
			last("new", "whole")
			n, err := push.SendBatch(ctx, [][]byte{[]byte("a"), []byte("b"), []byte("c")})
			must(t, err)
			if n != 3 {
				t.Errorf("%d of 3 were sent", n)
			}
			last("c")
			many := append(wire("long", string(make([]byte, queue.LendFrom))), wire("last", "", "one")...)
			must(t, push.sendWire(ctx, many, 2, l))
			last("last", "", "one")
		}
		if l.Retained.Load() != 0 {
			t.Error("something was lent")
		}
		r := accept().Greet("PULL", nil)
		if m := r.Message(); fmt.Sprint(texts(m)) != "[last  one]" {
			t.Errorf("%q", m)
		}
	})
	t.Run("PUB", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		pub := bind(t, NewPub, Options{Conflate: true, SendHWM: 1, FullPolicy: PolicyDisconnect, Linger: LingerNone})
		r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
		r.Send(wire("\x01"))
		must(t, pub.WaitSubscribers(ctx, "", 1))
		must(t, pub.Send(ctx, plug))
		for i := range 1000 {
			must(t, pub.Send(ctx, fmt.Append(nil, i)))
		}
		next := -1
		for next < 999 {
			m := r.Message()
			if len(m[0]) == len(plug) {
				continue
			}
			n := 0
			_, err := fmt.Sscan(string(m[0]), &n)
			must(t, err)
			if n <= next {
				t.Fatalf("%d came after %d", n, next)
			}
			next = n
		}
	})
	for _, where := range []string{"sender", "receiver"} {
		t.Run("inproc "+where, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			var names Inproc
			a := open(t, NewDealer, Options{Inproc: &names, SendHWM: 2, Conflate: where == "sender"})
			b := open(t, NewDealer, Options{Inproc: &names, RecvHWM: 2, Conflate: where == "receiver"})
			must(t, b.Bind(ctx, "inproc://x"))
			must(t, a.Connect("inproc://x"))
			for range 3 {
				for i := range 10 {
					must(t, a.TrySend(fmt.Append(nil, i)))
				}
				wantRecv(t, b.TryRecv, "9")
				if _, err := b.TryRecv(); err != ErrWouldBlock {
					t.Errorf("%v", err)
				}
			}
		})
	}
}
