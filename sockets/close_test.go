package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/engine"
	"clustermap/internal/hooks"
	"clustermap/internal/queue"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// common is the interface of all sockets.
type common interface {
	Bind(ctx context.Context, endpoint string) error
	Connect(endpoint string) error
	Unbind(endpoint string) error
	Disconnect(endpoint string) error
	LastEndpoint() string
	Close() error
	Peers() []PeerStats
}

// kinds makes one socket of each type.
func kinds(t testing.TB, o Options) map[string]common {
	t.Helper()
	return map[string]common{
		"Router": open(t, NewRouter, only(zmtp.TypeRouter, o)),
		"Dealer": open(t, NewDealer, only(zmtp.TypeDealer, o)),
		"Pub":    open(t, NewPub, only(zmtp.TypePub, o)),
		"Sub":    open(t, NewSub, only(zmtp.TypeSub, o)),
		"XPub":   open(t, NewXPub, only(zmtp.TypeXPub, o)),
		"XSub":   open(t, NewXSub, only(zmtp.TypeXSub, o)),
	}
}

// calls is every method of a socket that can wait or act, with a context that
// does not end.
func calls(s common) map[string]func() error {
	ctx := context.Background()
	all := map[string]func() error{
		"Bind":       func() error { return s.Bind(ctx, anyPort) },
		"Connect":    func() error { return s.Connect("tcp://127.0.0.1:1") },
		"Unbind":     func() error { return s.Unbind(anyPort) },
		"Disconnect": func() error { return s.Disconnect("tcp://127.0.0.1:1") },
	}
	x := []byte("x")
	switch s := s.(type) {
	case *Router:
		peer := (*Peer)(engine.NewPeer(engine.NewPipe(&s.core, "", false), zmtp.Peer{}))
		all["Send"] = func() error { return s.Send(ctx, x, x) }
		all["SendTo"] = func() error { return s.SendTo(ctx, peer, x) }
		all["SendWire"] = func() error { return s.sendWire(ctx, peer, wire("x"), 1, nil) }
		all["Recv"] = func() error { _, err := s.Recv(ctx); return err }
		all["RecvBatch"] = func() error { return s.RecvBatch(ctx, new(Batch)) }
	case *Dealer:
		all["Send"] = func() error { return s.Send(ctx, x) }
		all["Recv"] = func() error { _, err := s.Recv(ctx); return err }
		all["RecvBatch"] = func() error { return s.RecvBatch(ctx, new(Batch)) }
	case *Pub:
		all["Send"] = func() error { return s.Send(ctx, x) }
		all["SendWire"] = func() error { return s.sendWire(ctx, wire("x"), 1, nil) }
		all["SendSpans"] = func() error { return hooks.SendSpans(ctx, s, wire("x"), []buf.Span{{End: 3}}, nil) }
		all["WaitSubscribers"] = func() error { return s.WaitSubscribers(ctx, "x", 1) }
	case *XPub:
		all["Send"] = func() error { return s.Send(ctx, x) }
		all["SendWire"] = func() error { return s.sendWire(ctx, wire("x"), 1, nil) }
		all["WaitSubscribers"] = func() error { return s.WaitSubscribers(ctx, "x", 1) }
		all["Subscribe"] = func() error { return s.Subscribe("x") }
		all["Unsubscribe"] = func() error { return s.Unsubscribe("x") }
		all["Recv"] = func() error { _, err := s.Recv(ctx); return err }
		all["RecvBatch"] = func() error { return s.RecvBatch(ctx, new(Batch)) }
	case *XSub:
		all["Send"] = func() error { return s.Send(ctx, x) }
		all["Subscribe"] = func() error { return s.Subscribe("x") }
		all["WaitSubscribed"] = func() error { return s.WaitSubscribed(ctx) }
		all["Recv"] = func() error { _, err := s.Recv(ctx); return err }
		all["RecvBatch"] = func() error { return s.RecvBatch(ctx, new(Batch)) }
	case *Sub:
		all["Subscribe"] = func() error { return s.Subscribe("x") }
		all["Unsubscribe"] = func() error { return s.Unsubscribe("x") }
		all["WaitSubscribed"] = func() error { return s.WaitSubscribed(ctx) }
		all["Recv"] = func() error { _, err := s.Recv(ctx); return err }
		all["RecvBatch"] = func() error { return s.RecvBatch(ctx, new(Batch)) }
	}
	return all
}

// TestClosed: every call on a closed socket returns ErrClosed, which Is
// net.ErrClosed; Close can be called again.
func TestClosed(t *testing.T) {
	t.Parallel()
	for name, s := range kinds(t, Options{}) {
		must(t, s.Bind(testContext(t), anyPort))
		must(t, s.Connect(freePort(t)))
		must(t, s.Close())
		for call, f := range calls(s) {
			within(t, name+"."+call, func() {
				if err := f(); !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
					t.Errorf("%s.%s: %v", name, call, err)
				}
			})
		}
		if len(s.Peers()) != 0 {
			t.Errorf("%s has peers", name)
		}
		must(t, s.Close())
	}
}

// TestCloseEndsWaiting: calls that wait return ErrClosed; and so that they do
// wait, no peer is connected.
func TestCloseEndsWaiting(t *testing.T) {
	t.Parallel()
	for name, s := range kinds(t, Options{WaitSubscriber: true, Linger: LingerNone}) {
		var wg sync.WaitGroup
		for call, f := range calls(s) {
			switch call {
			case "Send", "Recv", "RecvBatch", "WaitSubscribers", "WaitSubscribed":
			default:
				continue
			}
			if (name == "Router" || name == "XSub") && call == "Send" {
				continue // it never waits for a peer
			}
			for range 3 {
				wg.Go(func() {
					if err := f(); !errors.Is(err, ErrClosed) {
						t.Errorf("%s.%s: %v", name, call, err)
					}
				})
			}
		}
		must(t, s.Close())
		within(t, name, wg.Wait)
	}
}

// TestContextEndsWaiting: the end of a context ends them too, with its error.
func TestContextEndsWaiting(t *testing.T) {
	t.Parallel()
	router, dealer := open(t, NewRouter, Options{}), open(t, NewDealer, Options{})
	pub, sub := open(t, NewPub, Options{WaitSubscriber: true}), open(t, NewSub, Options{})
	x := []byte("x")
	for name, f := range map[string]func(ctx context.Context) error{
		"Router.Recv":         func(ctx context.Context) error { _, err := router.Recv(ctx); return err },
		"Router.RecvBatch":    func(ctx context.Context) error { return router.RecvBatch(ctx, new(Batch)) },
		"Dealer.Send":         func(ctx context.Context) error { return dealer.Send(ctx, x) },
		"Dealer.Recv":         func(ctx context.Context) error { _, err := dealer.Recv(ctx); return err },
		"Dealer.RecvBatch":    func(ctx context.Context) error { return dealer.RecvBatch(ctx, new(Batch)) },
		"Pub.Send":            func(ctx context.Context) error { return pub.Send(ctx, x) },
		"Pub.WaitSubscribers": func(ctx context.Context) error { return pub.WaitSubscribers(ctx, "x", 1) },
		"Sub.Recv":            func(ctx context.Context) error { _, err := sub.Recv(ctx); return err },
		"Sub.RecvBatch":       func(ctx context.Context) error { return sub.RecvBatch(ctx, new(Batch)) },
		"Sub.WaitSubscribed":  func(ctx context.Context) error { return sub.WaitSubscribed(ctx) },
	} {
		reason := errors.New("reason")
		ctx, cancel := context.WithCancelCause(context.Background())
		result := make(chan error)
		go func() { result <- f(ctx) }()
		cancel(reason)
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
		if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		stop()
	}
}

// TestLinger: messages sent before Close arrive completely and in order, even if
// the receiver is slow and sends, too.
func TestLinger(t *testing.T) {
	t.Parallel()
	const n, size = 500, 20_000
	check := func(t *testing.T, recv func(ctx context.Context) (Message, error)) {
		ctx := testContext(t)
		for i := range n {
			m, err := recv(ctx)
			must(t, err)
			if got := string(m[len(m)-2]); got != fmt.Sprint(i) || len(m[len(m)-1]) != size {
				t.Fatalf("%q instead of %d", got, i)
			}
		}
	}
	body := make([]byte, size)
	t.Run("Dealer", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		router := bind(t, NewRouter, Options{RecvHWM: 5, SendHWM: -1})
		dealer := open(t, NewDealer, Options{SendHWM: -1, RecvHWM: 1})
		must(t, dealer.Connect(router.LastEndpoint()))
		must(t, dealer.Send(ctx, []byte("hello")))
		m, err := router.Recv(ctx)
		must(t, err)
		for range n { // unread, they would make a reset of Close
			must(t, router.Send(ctx, m[0], body))
		}
		for i := range n {
			must(t, dealer.Send(ctx, fmt.Append(nil, i), body))
		}
		closed := make(chan error)
		go func() { closed <- dealer.Close() }()
		check(t, router.Recv)
		must(t, <-closed)
	})
	t.Run("Dealer before it is connected", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		endpoint := freePort(t)
		dealer := open(t, NewDealer, quick(Options{SendHWM: -1}))
		must(t, dealer.Connect(endpoint))
		for i := range n {
			must(t, dealer.Send(ctx, fmt.Append(nil, i), body))
		}
		closed := make(chan error)
		go func() { closed <- dealer.Close() }()
		router := open(t, NewRouter, Options{})
		must(t, router.Bind(ctx, endpoint))
		check(t, router.Recv)
		must(t, <-closed)
	})
	t.Run("Router", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		router := bind(t, NewRouter, Options{SendHWM: -1})
		dealer := open(t, NewDealer, Options{RecvHWM: 5})
		must(t, dealer.Connect(router.LastEndpoint()))
		must(t, dealer.Send(ctx, []byte("hello")))
		m, err := router.Recv(ctx)
		must(t, err)
		for i := range n {
			must(t, router.Send(ctx, m[0], fmt.Append(nil, i), body))
		}
		closed := make(chan error)
		go func() { closed <- router.Close() }()
		check(t, dealer.Recv)
		must(t, <-closed)
	})
	t.Run("Pub", func(t *testing.T) {
		t.Parallel()
		ctx := testContext(t)
		pub := bind(t, NewPub, Options{SendHWM: -1})
		sub := subscribed(t, Options{RecvHWM: 5}, pub.LastEndpoint(), "")
		l := newLender()
		for i := range n {
			must(t, pub.sendWire(ctx, wire("", fmt.Sprint(i), string(body)), 1, l))
		}
		closed := make(chan error)
		go func() { closed <- pub.Close() }()
		check(t, sub.Recv)
		must(t, <-closed)
		if l.Refs.Load() != 0 {
			t.Errorf("%d references are left", l.Refs.Load())
		}
	})
}

// TestNoLinger: with LingerNone Close does not wait, and otherwise not
// longer than Linger.
func TestNoLinger(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, linger := range []time.Duration{LingerNone, 10 * time.Millisecond} {
		pub := bind(t, NewPub, Options{Linger: linger})
		r := stuck(t, pub)
		must(t, pub.Send(ctx, []byte("lost")))
		start := time.Now()
		within(t, "Close", func() { must(t, pub.Close()) })
		if took := time.Since(start); took < linger {
			t.Errorf("it gave up after %v", took)
		}
		n, _ := io.Copy(io.Discard, r.In)
		if n >= int64(len(plug)) {
			t.Errorf("%d bytes came", n)
		}

		dealer := open(t, NewDealer, Options{Linger: linger})
		must(t, dealer.Connect(freePort(t)))
		must(t, dealer.Send(ctx, []byte("lost")))
		within(t, "Close", func() { must(t, dealer.Close()) })
	}
}

// TestCloseAtAnyTime: sockets are closed while connections come up, in the
// middle of handshakes and of traffic, from several goroutines at once.
func TestCloseAtAnyTime(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for i := range 100 {
		o := quick(Options{Linger: []time.Duration{LingerNone, time.Millisecond}[i%2]})
		pub, err := NewPub(o)
		must(t, err)
		must(t, pub.Bind(ctx, anyPort))
		var subs []*Sub
		for range 3 {
			sub, err := NewSub(o)
			must(t, err)
			must(t, sub.Subscribe(""))
			must(t, sub.Connect(pub.LastEndpoint()))
			subs = append(subs, sub)
		}
		dialRaw(t, pub.LastEndpoint()).Send(greeting(1)[:i%64])
		var wg sync.WaitGroup
		wg.Go(func() {
			for pub.Send(ctx, []byte("x")) == nil {
			}
		})
		wg.Go(func() {
			for j := 0; j < i%7; j++ {
				_ = pub.Peers()
			}
			must(t, pub.Close())
		})
		for j, sub := range subs {
			wg.Go(func() {
				if (i+j)%3 > 0 {
					_, _ = sub.Recv(ctx)
				}
				must(t, sub.Close())
			})
			wg.Go(func() { must(t, sub.Close()) })
		}
		// A Recv may wait for a message that the closed publisher never sent.
		done := make(chan struct{})
		go func() {
			defer close(done)
			wg.Wait()
		}()
		eventually(t, "all is closed", func() bool {
			select {
			case <-done:
				return true
			default:
				if pub.core.Open() != nil {
					for _, sub := range subs {
						sub.Close()
					}
				}
				return false
			}
		})
	}
}

// TestCloseWithLentBatch: a batch remains valid after its socket is closed.
func TestCloseWithLentBatch(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
	r.Send(wire("mine"))
	var b Batch
	must(t, router.RecvBatch(ctx, &b))
	r.Send(wire("never taken"))
	must(t, router.Close())
	if fmt.Sprint(bodies(&b)) != "[mine]" {
		t.Errorf("%q", bodies(&b))
	}
	if err := router.RecvBatch(ctx, &b); !errors.Is(err, ErrClosed) || b.Len() != 0 {
		t.Errorf("%v, %d messages", err, b.Len())
	}
}

// inquisitive is an Owner whose Release asks a socket for its peers.
type inquisitive struct {
	socket Socket
	refs   atomic.Int32
}

func (o *inquisitive) Retain() { o.refs.Add(1) }

func (o *inquisitive) Release() {
	o.socket.Peers()
	o.refs.Add(-1)
}

// TestCloseReleasesWithoutLocks: Close releases bytes queued by reference over inproc
// without holding a lock that an Owner could need.
func TestCloseReleasesWithoutLocks(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	names := new(Inproc)
	pull := open(t, NewPull, Options{Inproc: names})
	must(t, pull.Bind(ctx, "inproc://x"))
	push := open(t, NewPush, Options{Inproc: names})
	must(t, push.Connect("inproc://x"))
	owner := &inquisitive{socket: pull}
	wire := zmtp.AppendMessage(nil, make([]byte, queue.LendFrom))
	for range 3 {
		must(t, push.sendWire(ctx, wire, 1, owner))
	}
	_, err := pull.Recv(ctx)
	must(t, err)
	closed := make(chan error, 1)
	go func() { closed <- pull.Close() }()
	select {
	case err := <-closed:
		must(t, err)
	case <-ctx.Done():
		panic("Close waits for a lock that it holds itself") // nothing else could end the test
	}
	eventually(t, "all is given back", func() bool { return owner.refs.Load() == 0 })
}

// TestCloseTwice: the second Close returns after the first one, including its last
// event.
func TestCloseTwice(t *testing.T) {
	t.Parallel()
	stopping, tell, told := make(chan struct{}), make(chan struct{}), atomic.Bool{}
	pull := open(t, NewPull, Options{Monitor: func(e Event) {
		if e.Kind == EventMonitorStopped {
			close(stopping)
			<-tell
			told.Store(true)
		}
	}})
	first := make(chan error)
	go func() { first <- pull.Close() }()
	<-stopping
	second := testenv.Blocked(t, "sockets.(*socket).Close", pull.Close)
	early := len(second) > 0
	close(tell)
	must(t, <-second)
	if early || !told.Load() {
		t.Error("the second Close did not wait for the first")
	}
	must(t, <-first)
}
