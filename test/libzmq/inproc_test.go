package libzmq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"clustermap/internal/sockettest"
	"clustermap/sockets"
)

// TestLibzmq_pair_inproc: one peer, and no second.
func TestLibzmq_pair_inproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	a, b := open(t, sockets.NewPair, o), open(t, sockets.NewPair, o)
	must(t, a.Bind(ctx, "inproc://a"))
	must(t, b.Connect("inproc://a"))
	seen := newEvents()
	o.Monitor = seen.Tell
	second := open(t, sockets.NewPair, o)
	must(t, second.Connect("inproc://a"))
	seen.Await(t, sockets.EventDisconnected)
	for i := range 100 {
		must(t, a.Send(ctx, fmt.Append(nil, i), nil))
		m, err := b.Recv(ctx)
		must(t, err)
		must(t, b.Send(ctx, m...))
		m, err = a.Recv(ctx)
		must(t, err)
		if len(m) != 2 || string(m[0]) != fmt.Sprint(i) {
			t.Fatalf("%q", m)
		}
	}
}

// TestLibzmq_reqrep_inproc: an exchange, with either side first.
func TestLibzmq_reqrep_inproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, first := range []string{"bind", "connect"} {
		o := inprocOptions()
		router := open(t, sockets.NewRouter, o)
		o.Identity = []byte("me")
		dealer := open(t, sockets.NewDealer, o)
		if first == "bind" {
			must(t, router.Bind(ctx, "inproc://a"))
		}
		must(t, dealer.Connect("inproc://a"))
		if first == "connect" {
			must(t, dealer.Send(ctx, []byte("early")))
			must(t, router.Bind(ctx, "inproc://a"))
			m, err := router.Recv(ctx)
			must(t, err)
			if got := texts(m); fmt.Sprint(got) != "[me early]" {
				t.Errorf("%q", got)
			}
		}
		if router.LastEndpoint() != "inproc://a" || dealer.LastEndpoint() != "inproc://a" {
			t.Errorf("%q and %q", router.LastEndpoint(), dealer.LastEndpoint())
		}
		// Both know each other when Bind and Connect have returned.
		must(t, router.Send(ctx, []byte("me"), []byte("first")))
		wants(t, dealer, "first")
		for range 5 {
			echo(t, ctx, dealer, router)
		}
		p := router.Peers()[0]
		if p.Remote != "inproc://a" || p.Endpoint != "inproc://a" || string(p.Identity) != "me" || p.MessagesIn < 5 || p.MessagesOut < 6 {
			t.Errorf("%+v", p)
		}
	}
}

// TestLibzmq_hwm_inproc: the bound is the sum of both sides', or none.
func TestLibzmq_hwm_inproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, c := range []struct{ send, recv, bound int }{
		{2, 3, 5}, {1, 1, 2}, {0, 0, 2000}, {-1, 1, 0}, {1, -1, 0}, {-1, -1, 0},
	} {
		for _, first := range []string{"bind", "connect"} {
			names := new(sockets.Inproc)
			push := open(t, sockets.NewPush, sockets.Options{Inproc: names, SendHWM: c.send})
			pull := open(t, sockets.NewPull, sockets.Options{Inproc: names, RecvHWM: c.recv})
			if first == "bind" {
				must(t, pull.Bind(ctx, "inproc://a"))
				must(t, push.Connect("inproc://a"))
			} else {
				must(t, push.Connect("inproc://a"))
				must(t, pull.Bind(ctx, "inproc://a"))
			}
			fill := func(most int) int {
				for n := range most {
					err := push.TrySend([]byte("x"))
					if errors.Is(err, sockets.ErrWouldBlock) {
						return n
					}
					must(t, err)
				}
				return most
			}
			const plenty = 3000
			want := c.bound
			if want == 0 {
				want = plenty
			}
			for round := range 2 {
				if got := fill(plenty); got != want {
					t.Errorf("%+v, %s first, round %d: %d messages", c, first, round, got)
				}
				for range want {
					m, err := pull.Recv(ctx)
					must(t, err)
					if string(m[0]) != "x" {
						t.Fatal(m)
					}
				}
				if _, err := pull.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
					t.Errorf("%+v: one more: %v", c, err)
				}
			}
			// Taken messages make room, before all are taken.
			if got := fill(want); got != want {
				t.Errorf("%d messages", got)
			}
			if c.bound > 4 {
				for range c.bound/2 + 1 {
					_, err := pull.Recv(ctx)
					must(t, err)
				}
				if got := fill(plenty); got < c.bound/2 || got > c.bound/2+1 {
					t.Errorf("%+v: after half was taken there is room for %d", c, got)
				}
			}
		}
	}
}

// TestLibzmq_inproc_connect: connects in any number and order wait for the
// bind; a name that was unbound can be bound anew, and its connections stay.
func TestLibzmq_inproc_connect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	var dealers []*sockets.Dealer
	for i := range 10 {
		o.Identity = fmt.Append(nil, i)
		dealer := open(t, sockets.NewDealer, o)
		must(t, dealer.Connect("inproc://a"))
		must(t, dealer.Connect("inproc://b"))
		must(t, dealer.Send(ctx, []byte("to a")))
		must(t, dealer.Send(ctx, []byte("to b")))
		dealers = append(dealers, dealer)
	}
	o.Identity = nil
	a, b := open(t, sockets.NewRouter, o), open(t, sockets.NewRouter, o)
	must(t, b.Bind(ctx, "inproc://b"))
	must(t, a.Bind(ctx, "inproc://a"))
	for router, text := range map[*sockets.Router]string{a: "to a", b: "to b"} {
		seen := map[string]bool{}
		for range dealers {
			m, err := router.Recv(ctx)
			must(t, err)
			seen[string(m[0])] = true
			if string(m[1]) != text {
				t.Errorf("%q", m)
			}
		}
		if len(seen) != len(dealers) {
			t.Errorf("messages of %v", seen)
		}
	}
	must(t, a.Unbind("inproc://a"))
	if err := a.Unbind("inproc://a"); !errors.Is(err, sockets.ErrNotBound) {
		t.Errorf("Unbind again: %v", err)
	}
	next := open(t, sockets.NewRouter, o)
	must(t, next.Bind(ctx, "inproc://a"))
	must(t, a.Send(ctx, []byte("3"), []byte("still there")))
	wants(t, dealers[3], "still there")
	for _, bad := range []string{"inproc://", "inproc://" + strings.Repeat("x", 257)} {
		var typed *sockets.EndpointError
		if err := a.Bind(ctx, bad); !errors.As(err, &typed) {
			t.Errorf("%.20s: %v", bad, err)
		}
	}
	must(t, a.Bind(ctx, "inproc://"+strings.Repeat("x", 256)))
}

// TestLibzmq_proxy_hwm: a subscriber that does not receive holds back a forwarder whose
// XPUB waits for it, and so the publisher. The high-water marks of the two connections
// bound the queued messages. Meanwhile the proxy answers, and nothing is lost.
func TestLibzmq_proxy_hwm(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const hwm = 10
	o := inprocOptions()
	o.SendHWM, o.RecvHWM = hwm, hwm
	nodrop := o
	nodrop.FullPolicy = sockets.PolicyBlock
	in, out, control := open(t, sockets.NewXSub, o), open(t, sockets.NewXPub, nodrop), open(t, sockets.NewRep, o)
	must(t, in.Bind(ctx, "inproc://frontend"))
	must(t, out.Bind(ctx, "inproc://backend"))
	must(t, control.Bind(ctx, "inproc://control"))
	p := newProxy(t, in, out, sockets.ProxyOptions{Control: control})
	end := sockettest.Running(t, p)
	pub := dialled(t, sockets.NewXPub, nodrop, in.LastEndpoint())
	sub := dialled(t, sockets.NewSub, sockets.Options{Inproc: o.Inproc, RecvHWM: hwm}, out.LastEndpoint())
	must(t, sub.Subscribe(""))
	wants(t, pub, "\x01")
	operator := dialled(t, sockets.NewReq, o, control.LastEndpoint())

	body := bytes.Repeat([]byte("A"), 50_000)
	sent := uint32(0)
	send := func() (full bool) {
		t.Helper()
		binary.BigEndian.PutUint32(body, sent)
		err := pub.TrySend(body)
		if errors.Is(err, sockets.ErrWouldBlock) {
			return true
		}
		must(t, err)
		// Each connection has the marks of both of its ends. The queue to the subscriber
		// takes all of a batch if it has room for one message of it, and a batch has at
		// most the messages queued to the proxy.
		const most = 2*hwm + 2*hwm - 1 + 2*hwm
		if sent++; sent > most {
			t.Fatalf("more than %d messages are sent with marks of %d", most, hwm)
		}
		return false
	}
	for !send() {
	}
	if sent < 2*hwm {
		t.Errorf("only %d messages are sent with marks of %d", sent, hwm)
	}
	eventually(t, "the proxy is held back", func() bool {
		for !send() {
		}
		must(t, operator.Send(ctx, []byte("STATISTICS")))
		m, err := operator.Recv(ctx)
		must(t, err)
		if len(m) != 8 {
			t.Fatalf("%d frames", len(m))
		}
		return binary.NativeEndian.Uint64(m[6]) >= 2*hwm // frames that the backend has queued
	})
	for !send() {
	}
	for i := range sent {
		m, err := sub.Recv(ctx)
		must(t, err)
		if n := binary.BigEndian.Uint32(m[0]); n != i || len(m[0]) != len(body) {
			t.Fatalf("message %d of %d bytes came in place of %d", n, len(m[0]), i)
		}
	}
	wantQueued(t, sub)
	eventually(t, "the publisher goes on", func() bool { return !send() })
	wants(t, sub, string(body))
	end()
}

// TestLibzmq_disconnect_inproc: the end of a subscriber's connection is the end
// of its subscription, and nothing that is published later comes.
func TestLibzmq_disconnect_inproc(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{anyPort, "inproc://" + t.Name()} {
		pub := open(t, sockets.NewXPub, sockets.Options{})
		must(t, pub.Bind(testContext(t), endpoint))
		sub := open(t, sockets.NewSub, sockets.Options{})
		must(t, sub.Subscribe("foo"))
		for range 3 {
			must(t, sub.Connect(pub.LastEndpoint()))
			wants(t, pub, "\x01foo")
			says(t, pub, "foo says this is a message")
			wants(t, sub, "foo says this is a message")
			must(t, sub.Disconnect(pub.LastEndpoint()))
			if endpoint != anyPort { // done when the call returns
				if m, err := pub.TryRecv(); err != nil || string(m[0]) != "\x00foo" {
					t.Errorf("after Disconnect the XPUB is told %q, %v", m, err)
				}
			} else {
				wants(t, pub, "\x00foo")
			}
			for range 10 {
				says(t, pub, "foo says what nobody hears")
			}
			if m, err := sub.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
				t.Errorf("after Disconnect %q came, %v", m, err)
			}
		}
	}
}
