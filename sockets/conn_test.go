package sockets

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"clustermap/internal/hooks"
	"clustermap/zmtp"
)

// TestConnEnd: bytes and the end of the connection that come together are both
// seen, though the poller may tell of them only once.
func TestConnEnd(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	const rounds = 300
	for i := range rounds {
		r := dialRaw(t, router.LastEndpoint())
		if i%2 == 0 {
			r.Send(append(append(greeting(1), ready("DEALER", nil)...), wire(fmt.Sprint(i))...))
		} else {
			// In the middle of traffic: the reader is already waiting.
			r.Greet("DEALER", nil).Sync()
			r.Send(wire(fmt.Sprint(i)))
		}
		must(t, r.Conn.(*net.TCPConn).CloseWrite())
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[1]) != fmt.Sprint(i) {
			t.Fatalf("%q instead of %d", m[1], i)
		}
		if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, io.EOF) {
			t.Fatalf("round %d: disconnected for %v", i, e.Err)
		}
		r.Ended()
	}
}

// TestConnCloseWaitsForNobody: a connection whose reader waits for the
// application is ended from outside all the same, in every way.
func TestConnCloseWaitsForNobody(t *testing.T) {
	t.Parallel()
	mine := errors.New("my reason")
	for name, end := range map[string]func(router *Router, peer *Peer, r *raw){
		"Peer.Disconnect": func(_ *Router, peer *Peer, _ *raw) { peer.Disconnect(mine) },
		"Unbind":          func(router *Router, _ *Peer, _ *raw) { must(t, router.Unbind(router.LastEndpoint())) },
		"Close":           func(router *Router, _ *Peer, _ *raw) { must(t, router.Close()) },
		"the writer": func(router *Router, peer *Peer, r *raw) {
			// The peer resets the connection, and the writer learns of it.
			must(t, r.Conn.(*net.TCPConn).SetLinger(0))
			r.Conn.Close()
			_ = router.SendTo(testContext(t), peer, []byte("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := newEvents()
			router := bind(t, NewRouter, Options{RecvHWM: 1, Linger: LingerNone, Monitor: seen.Tell})
			r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
			peer := seen.Await(t, EventHandshakeSucceeded).Peer
			r.Send(wire("1"), wire("2"), wire("3"))
			eventually(t, "the reader waits", func() bool {
				_, _, waiting := router.core.In.Look(&peer.engine().Pipe().In)
				return waiting > 0
			})
			within(t, name, func() { end(router, peer, r) })
			if name == "Close" {
				return // of which the monitor is not told
			}
			e := seen.Await(t, EventDisconnected)
			var typed *PeerError
			if !errors.As(e.Err, &typed) || typed.Remote != e.Remote || e.Peer != peer {
				t.Errorf("%+v", e)
			}
			if name == "Peer.Disconnect" && !errors.Is(e.Err, mine) {
				t.Errorf("the reason is lost: %v", e.Err)
			}
		})
	}
}

// TestDisconnectInPrepare: Prepare runs inside the connection's read, and may
// end the connection.
func TestDisconnectInPrepare(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	bad := errors.New("bad message")
	seen := newEvents()
	router := open(t, NewRouter, Options{Monitor: seen.Tell})
	hooks.Prepare(router, func(b *hooks.Batch) {
		for i, s := range b.Spans() {
			if body, _ := b.Message(i).Next(); string(body) == "bad" {
				b.Peer().Disconnect(bad)
				b.SetSpans(b.Spans()[:i])
				return
			}
			b.Spans()[i].Tag = uint64(s.End - s.Start)
		}
	})
	must(t, router.Bind(ctx, freePort(t)))
	r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
	r.Send(append(append(wire("good"), wire("bad")...), wire("after")...))
	r.Ended()
	if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, bad) {
		t.Errorf("disconnected for %v", e.Err)
	}
	var b Batch
	must(t, router.RecvBatch(ctx, &b))
	if fmt.Sprint(bodies(&b)) != "[good]" || b.engine().Spans()[0].Tag != 6 {
		t.Errorf("%q, %v", bodies(&b), b.engine().Spans())
	}
	b.Release()
}

// TestSlowSubscriberHoldsMutex: a publisher that disconnects a peer holds the
// mutex that the peer's reader may be waiting for.
func TestSlowSubscriberHoldsMutex(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := bind(t, NewPub, Options{FullPolicy: PolicyDisconnect, SendHWM: 1, Linger: LingerNone})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			// It subscribes without end, reads nothing, and is soon too slow.
			r := dialRaw(t, pub.LastEndpoint()).Greet("SUB", nil)
			for i := 0; ; i++ {
				topic := zmtp.AppendSubscribe(nil, fmt.Append(nil, i%100))
				if _, err := r.Conn.Write(zmtp.AppendCancel(topic, fmt.Append(nil, i%100))); err != nil {
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	within(t, "publishing", func() {
		body := make([]byte, 64<<10)
		for i := 0; ; i++ {
			must(t, pub.Send(ctx, fmt.Append(nil, i%100), body))
			select {
			case <-done:
				return
			default:
			}
		}
	})
}

// TestPingTTL: a PING may bound the silence after it.
func TestPingTTL(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{Monitor: seen.Tell})
	r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
	// Bytes behind a PING lift its bound: this peer stays.
	quiet := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
	quiet.Send(append(zmtp.AppendPing(nil, 1, nil), wire("x")...)) // together, for we may be slow
	talks := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
	for range 5 {
		talks.Send(zmtp.AppendPing(nil, 9999, nil))
		talks.Command()
		talks.Sync()
	}
	r.Send(zmtp.AppendPing(nil, 9999, []byte("bound")))
	if name, data := r.Command(); name != "PONG" || data != "bound" {
		t.Errorf("%s %q", name, data)
	}
	start := time.Now()
	r.Send(zmtp.AppendPing(nil, 2, nil)) // an earlier end takes the place of a later one
	r.Ended()
	if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrHeartbeatTimeout) || time.Since(start) < 200*time.Millisecond {
		t.Errorf("disconnected after %v for %v", time.Since(start), e.Err)
	}
	quiet.Sync()
}
