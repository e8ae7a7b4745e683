package sockets

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang is how long a test waits for what must happen before it gives up; no
// test depends on its length.
const hang = 60 * time.Second

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
func open[S interface{ Close() error }](t testing.TB, make func(Options) (S, error), o Options) S {
	t.Helper()
	s, err := make(o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}
