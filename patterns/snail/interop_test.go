package snail

import (
	"errors"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

// TestInteropPublisher: the subscriber reads the stamps of the guide's publisher, and
// stops when they are too old.
func TestInteropPublisher(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	ctx := testContext(t)
	pub := interop.Python(t, "testdata/snail.py", "pub")
	sub, err := NewSubscriber(Options{Endpoints: []string{pub.Endpoint}, MaxDelay: 300 * time.Millisecond})
	must(t, err)
	t.Cleanup(func() { must(t, sub.Close()) })
	// On a busy machine any of them may be late, but not all.
	for {
		_, lag, err := sub.Next(ctx)
		if errors.Is(err, ErrLagged) {
			sub.Close()
			sub, err = NewSubscriber(Options{Endpoints: []string{pub.Endpoint}, MaxDelay: 300 * time.Millisecond})
			must(t, err)
			continue
		}
		must(t, err)
		if lag.Delay < -time.Second {
			t.Fatalf("a delay of %v", lag.Delay)
		}
		break
	}
	pub.Call(interop.Op{"op": "pause"}, nil)
	for err == nil {
		_, err = sub.Recv(ctx)
	}
	if !errors.Is(err, ErrLagged) {
		t.Fatal(err)
	}
	if s := sub.Stats(); s.Malformed != 0 {
		t.Errorf("%+v", s)
	}
}

// TestInteropSubscriber: the guide's subscriber reads our stamps, and terminates when
// they are too old.
func TestInteropSubscriber(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	ctx := testContext(t)
	socket, err := sockets.NewPub(sockets.Options{})
	must(t, err)
	t.Cleanup(func() { socket.Close() })
	must(t, socket.Bind(ctx, anyPort))
	late := newClock()
	late.ns.Store(time.Now().Add(time.Hour).UnixNano())
	pub := NewPublisher(socket, PublisherOptions{Now: late.now})
	sub := interop.Python(t, "testdata/snail.py", "sub", socket.LastEndpoint())
	must(t, socket.WaitSubscribers(ctx, "", 1))
	must(t, pub.Send(ctx))
	var got struct{ Delay int }
	sub.Event("delay", &got)
	if got.Delay > 0 || got.Delay < -3600_000 {
		t.Errorf("a delay of %d ms", got.Delay)
	}
	late.add(-2 * time.Hour)
	must(t, pub.Send(ctx))
	sub.Event("died", &got)
	if got.Delay < 3590_000 {
		t.Errorf("died of %d ms", got.Delay)
	}
}
