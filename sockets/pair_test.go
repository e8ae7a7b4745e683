package sockets

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestPairRefuses: a second peer is disconnected, and the first one notices
// nothing. When that one has gone, another may come.
func TestPairRefuses(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	pair := bind(t, NewPair, Options{Monitor: seen.Tell})
	if err := pair.TrySend([]byte("nobody")); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("without a peer: %v", err)
	}
	first := dialRaw(t, pair.LastEndpoint()).Greet("PAIR", nil)
	first.Sync()
	second := dialRaw(t, pair.LastEndpoint()).Greet("PAIR", nil)
	second.Ended()
	if e := seen.Await(t, EventPeerIgnored); !errors.Is(e.Err, ErrPaired) {
		t.Errorf("%v", e.Err)
	}
	if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrPaired) {
		t.Errorf("%v", e.Err)
	}
	for range 10 {
		must(t, pair.Send(ctx, []byte("still")))
		if m := first.Message(); string(m[0]) != "still" {
			t.Errorf("%q", m)
		}
	}
	first.Send(wire("here"))
	_, err := pair.Recv(ctx)
	must(t, err)
	first.Conn.Close()
	seen.Await(t, EventDisconnected)
	third := dialRaw(t, pair.LastEndpoint()).Greet("PAIR", nil)
	must(t, pair.Send(ctx, []byte("welcome")))
	if m := third.Message(); string(m[0]) != "welcome" {
		t.Errorf("%q", m)
	}
}

// TestPairConnects: an endpoint of Connect is the one peer from then on, even before it
// is there, and messages queued for it go to no other; the next endpoint gets its turn
// when the first is disconnected.
func TestPairConnects(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pair := bind(t, NewPair, quick(Options{SendHWM: 3, Linger: LingerNone}))
	bound := pair.LastEndpoint()
	nobody := freePort(t)
	must(t, pair.Connect(nobody))
	dialRaw(t, bound).Greet("PAIR", nil).Ended()
	other := bind(t, NewPair, Options{})
	must(t, pair.Connect(other.LastEndpoint()))
	for range 3 {
		must(t, pair.TrySend([]byte("for the first")))
	}
	if err := pair.TrySend([]byte("too many")); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("with a full queue: %v", err)
	}
	must(t, pair.Disconnect(nobody))
	must(t, pair.Send(ctx, []byte("for the second")))
	wants(t, other, "for the second")
}

// TestPairReconnect: queued messages stay for the next connection, but not with
// Immediate.
func TestPairReconnect(t *testing.T) {
	t.Parallel()
	for _, immediate := range []bool{false, true} {
		t.Run(fmt.Sprint(immediate), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			endpoint, accept := listenRaw(t)
			seen := newEvents()
			pair := open(t, NewPair, quick(Options{Immediate: immediate, Monitor: seen.Tell, Linger: LingerNone}))
			must(t, pair.Connect(endpoint))
			if err := pair.TrySend([]byte("early")); immediate != errors.Is(err, ErrWouldBlock) {
				t.Errorf("before the connection: %v", err)
			}
			first := accept().Greet("PAIR", nil)
			must(t, pair.Send(ctx, []byte("now")))
			if !immediate {
				first.Message()
			}
			if m := first.Message(); string(m[0]) != "now" {
				t.Errorf("%q", m)
			}
			must(t, pair.Send(ctx, plug))
			eventually(t, "the plug is taken", func() bool { return pair.Peers()[0].QueuedMessages == 0 })
			first.Begun()
			must(t, pair.Send(ctx, []byte("queued")))
			first.Conn.Close()
			seen.Await(t, EventDisconnected)
			second := accept().Greet("PAIR", nil)
			must(t, pair.Send(ctx, []byte("again")))
			m := second.Message()
			if !immediate {
				if string(m[0]) != "queued" {
					t.Errorf("%.20q", m[0])
				}
				m = second.Message()
			}
			if string(m[0]) != "again" {
				t.Errorf("%.20q", m[0])
			}
		})
	}
}

func TestPairErrors(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pair := open(t, NewPair, Options{})
	if err := pair.Send(ctx); !errors.Is(err, ErrNoFrames) {
		t.Errorf("no frames: %v", err)
	}
	if _, err := pair.TryRecv(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("TryRecv: %v", err)
	}
	result := make(chan error, 2)
	go func() { result <- pair.Send(ctx, []byte("x")) }()
	go func() {
		_, err := pair.Recv(context.Background())
		result <- err
	}()
	must(t, pair.Close())
	for range 2 {
		if err := <-result; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
}
