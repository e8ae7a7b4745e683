package sockets

import (
	"context"
	"testing"
	"time"

	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

const (
	hang    = testenv.Hang
	anyPort = testenv.AnyPort
)

var (
	testContext = testenv.Context
	must        = testenv.Must
	eventually  = testenv.Eventually
	within      = testenv.Within
	newLender   = testenv.NewLender
)

func TestMain(m *testing.M) {
	testenv.Names()
	goleak.VerifyTestMain(m)
}

// open makes a socket that is closed at the end of the test.
// It does not wait for ever for messages that are not taken.
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

// bind makes a socket that is bound to a port of its own, also when it has been closed:
// a late connection to the port meets no socket of another test.
func bind[S interface {
	Bind(context.Context, string) error
	Close() error
}](t testing.TB, make func(Options) (S, error), o Options) S {
	t.Helper()
	s := open(t, make, o)
	must(t, s.Bind(testContext(t), freePort(t)))
	return s
}
