package peers

import (
	"context"
	"testing"

	"clustermap/bench/internal/flow"
	"clustermap/bench/peers/internal/libzmq"
	"clustermap/patterns/espresso"
	"clustermap/sockets"
)

// passing returns a function that sends n messages of 100 bytes over loopback TCP through
// the proxy bound at the two endpoints.
func passing(b *testing.B, frontend, backend string) func(n int) {
	b.Helper()
	f, err := flow.New(context.Background(), 100, frontend, backend)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return func(n int) {
		if err := f.Pass(context.Background(), n); err != nil {
			b.Fatal(err)
		}
	}
}

// ourProxy runs our proxy, or with capture a tap with an observer that reads.
func ourProxy(b *testing.B, capture bool) func(n int) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := sockets.Options{FullPolicy: sockets.PolicyBlock, Linger: sockets.LingerNone}
	front, e1 := sockets.NewXSub(sockets.Options{Linger: sockets.LingerNone})
	back, e2 := sockets.NewXPub(o)
	for _, err := range []error{e1, e2, front.Bind(ctx, "tcp://127.0.0.1:*"), back.Bind(ctx, "tcp://127.0.0.1:*")} {
		if err != nil {
			b.Fatal(err)
		}
	}
	tap, err := espresso.NewTap(front, back, espresso.Options{})
	if err != nil {
		b.Fatal(err)
	}
	observed, ended := make(chan struct{}), make(chan struct{})
	observer := tap.Observe(espresso.Filter{})
	if capture {
		go func() {
			var e espresso.Event
			for observer.Next(context.Background(), &e) == nil {
			}
			close(observed)
		}()
	} else {
		observer.Close()
		close(observed)
	}
	go func() {
		_ = tap.Run(ctx)
		close(ended)
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
		<-observed
		front.Close()
		back.Close()
	})
	return passing(b, front.LastEndpoint(), back.LastEndpoint())
}

// libzmqProxy runs zmq_proxy, with capture as in the guide's Espresso: to a PAIR whose
// other end a thread reads.
func libzmqProxy(b *testing.B, capture bool) func(n int) {
	b.Helper()
	c := libzmq.NewContext()
	b.Cleanup(c.Shutdown)
	open := func(t libzmq.Type, endpoint string) (libzmq.Socket, string) {
		s, err := c.Socket(t)
		if err == nil && t == libzmq.XPUB {
			err = s.NoDrop()
		}
		if err == nil {
			endpoint, err = s.Bind(endpoint)
		}
		if err != nil {
			b.Fatal(err)
		}
		return s, endpoint
	}
	front, frontend := open(libzmq.XSUB, "tcp://127.0.0.1:*")
	back, backend := open(libzmq.XPUB, "tcp://127.0.0.1:*")
	var copies libzmq.Socket
	if capture {
		copies, _ = open(libzmq.PAIR, "inproc://capture")
		listener, err := c.Socket(libzmq.PAIR)
		if err == nil {
			err = listener.Connect("inproc://capture")
		}
		if err != nil {
			b.Fatal(err)
		}
		go listener.Drain()
	}
	go libzmq.Proxy(front, back, copies)
	return passing(b, frontend, backend)
}

// BenchmarkProxy passes messages of 100 bytes from a publisher to a subscriber, both
// ours, through our forwarder and through libzmq's in turn: alone, and with a copy of
// each message, for a tap's observer with us and for a capture socket with libzmq.
//
// ns/op is that of both together. ours-ns and peer-ns are the medians of the turns,
// and ratio is the median of peer/ours: above 1, ours is faster.
func BenchmarkProxy(b *testing.B) {
	for _, capture := range []bool{false, true} {
		name := "plain"
		if capture {
			name = "capture"
		}
		b.Run(name, func(b *testing.B) {
			us, them := ourProxy(b, capture), libzmqProxy(b, capture)
			us(1000)
			them(1000)
			b.ResetTimer()
			turns(b, us, them)
		})
	}
}
