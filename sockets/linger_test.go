package sockets

import (
	"clustermap/internal/testenv"
	"context"
	"errors"
	"testing"
	"time"
)

// unsent makes a socket that waits for ever in Close, with a message for a peer
// that says nothing until it is accepted.
func unsent(t *testing.T) (dealer *Dealer, endpoint string, accept func() *raw) {
	t.Helper()
	endpoint, accept = listenRaw(t)
	dealer, err := NewDealer(quick(Options{Linger: LingerForever}))
	must(t, err)
	must(t, dealer.Connect(endpoint))
	must(t, dealer.Send(testContext(t), []byte("x")))
	return dealer, endpoint, accept
}

// TestLingerForever: with it Close waits for a peer, however late it connects.
func TestLingerForever(t *testing.T) {
	t.Parallel()
	dealer, _, accept := unsent(t)
	closed := testenv.Blocked(t, "sockets.(*socket).Close", dealer.Close)
	meanwhile(t)
	if len(closed) != 0 {
		t.Fatal("it did not wait")
	}
	if m := accept().Greet("DEALER", nil).Message(); string(m[0]) != "x" {
		t.Errorf("%q", m)
	}
	must(t, <-closed)
}

// TestLingerSub: a SUB or XSUB does not wait by default.
func TestLingerSub(t *testing.T) {
	t.Parallel()
	xsub, err := NewXSub(Options{})
	must(t, err)
	endpoint, _ := listenRaw(t)
	must(t, xsub.Connect(endpoint))
	says(t, xsub, "for nobody")
	within(t, "Close", func() { must(t, xsub.Close()) })
	sub, err := NewSub(Options{})
	must(t, err)
	must(t, sub.Connect(endpoint))
	within(t, "Close", func() { must(t, sub.Close()) })
}

// TestCloseContext: a context limits the wait, including that of another call.
func TestCloseContext(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(context.Background())
	dealer, _, _ := unsent(t)
	time.AfterFunc(10*time.Millisecond, cancel)
	within(t, "CloseContext", func() {
		if err := dealer.CloseContext(over); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	if err := dealer.Send(over, []byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
	must(t, dealer.Close())

	dealer, _, _ = unsent(t)
	closed := make(chan error, 1)
	go func() { closed <- dealer.Close() }()
	<-dealer.core.Closing()
	within(t, "CloseContext", func() {
		if err := dealer.CloseContext(over); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		must(t, <-closed)
	})

	// With nothing to wait for, it is as good as Close.
	router := bind(t, NewRouter, Options{})
	must(t, router.CloseContext(over))
	pull := bind(t, NewDealer, Options{})
	other := dialled(t, NewDealer, Options{}, pull.LastEndpoint())
	says(t, other, "x")
	must(t, other.CloseContext(testContext(t)))
	wants(t, pull, "x")
}

// TestDisconnectThenClose: Close also waits for messages that Disconnect has left to be
// written, and CloseContext ends that wait.
func TestDisconnectThenClose(t *testing.T) {
	t.Parallel()
	dealer, endpoint, _ := unsent(t)
	must(t, dealer.Disconnect(endpoint))
	over, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	within(t, "CloseContext", func() {
		if err := dealer.CloseContext(over); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
