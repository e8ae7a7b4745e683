package sockets

import (
	"context"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang is how long a test waits for what must happen before it gives up; no
// test depends on its length.
const hang = 3 * time.Minute

// anyPort is the endpoint to bind when the port does not matter.
const anyPort = "tcp://127.0.0.1:*"

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open makes a socket that is closed at the end of the test.
// Messages that nobody takes are not for ever waited for.
func open[S interface{ Close() error }](t testing.TB, make func(Options) (S, error), o Options) S {
	t.Helper()
	if o.Linger == 0 {
		o.Linger = 30 * time.Second
	}
	s, err := make(o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// bind makes a socket that is bound to a port of its own.
func bind[S interface {
	Bind(context.Context, string) error
	Close() error
}](t testing.TB, make func(Options) (S, error), o Options) S {
	t.Helper()
	s := open(t, make, o)
	must(t, s.Bind(testContext(t), anyPort))
	return s
}

// eventually waits for a condition that nothing signals.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(time.Millisecond) {
		if time.Since(start) > hang {
			buf := make([]byte, 1<<20)
			t.Fatalf("never: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

// within runs f, which must return by itself.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(hang):
		buf := make([]byte, 1<<20)
		t.Fatalf("hangs: %s\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}
