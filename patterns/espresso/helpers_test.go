package espresso

import (
	"context"
	"errors"
	"sync"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/sockets"

	"go.uber.org/goleak"
)

var (
	testContext = testenv.Context
	must        = testenv.Must
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a socket that is closed at the end of the test.
func open[S sockets.Socket](t testing.TB, create func(sockets.Options) (S, error), o sockets.Options) S {
	t.Helper()
	s, err := create(o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// bound is open, and binds to a port that the system chooses.
func bound[S sockets.Socket](t testing.TB, create func(sockets.Options) (S, error), o sockets.Options) S {
	t.Helper()
	s := open(t, create, o)
	must(t, s.Bind(testContext(t), "tcp://127.0.0.1:*"))
	return s
}

// connected is open, and connects to another socket.
func connected[S sockets.Socket](t testing.TB, create func(sockets.Options) (S, error), o sockets.Options, to sockets.Socket) S {
	t.Helper()
	s := open(t, create, o)
	must(t, s.Connect(to.LastEndpoint()))
	return s
}

// running makes a tap and runs it until the test ends, or until end is called, which
// checks the error.
func running(t testing.TB, frontend, backend sockets.Socket, o Options) (tap *Tap, end func()) {
	t.Helper()
	tap, err := NewTap(frontend, backend, o)
	must(t, err)
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() { done <- tap.Run(ctx) }()
	end = sync.OnceFunc(func() {
		t.Helper()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the tap ended with %v", err)
		}
	})
	t.Cleanup(end)
	return tap, end
}

// next returns the next event of an observer.
func next(t testing.TB, o *Observer) *Event {
	t.Helper()
	var e Event
	must(t, o.Next(testContext(t), &e))
	return &e
}
