package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// TestSlowAuthenticatorEvictsNobody: with a slow authenticator and many more clients than
// MaxHandshakes, newcomers wait and each client is authenticated once and let in: no client that
// waits for the authenticator is evicted.
func TestSlowAuthenticatorEvictsNobody(t *testing.T) {
	t.Parallel()
	const clients, most = 48, 8
	var authenticated, running, peak atomic.Int32
	seen := newEvents()
	pull := open(t, NewPull, Options{MaxHandshakes: most, Monitor: seen.Tell, Security: Security{
		PlainServer: true,
		Authenticate: func(ctx context.Context, r AuthRequest) (User, error) {
			authenticated.Add(1)
			n := running.Add(1)
			defer running.Add(-1)
			for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			return User{ID: r.Username()}, nil
		},
	}})
	pull.core.Tuning.HandshakeGrace = hang // on a busy machine clients are slow
	must(t, pull.Bind(testContext(t), anyPort))
	for i := range clients {
		push := open(t, NewPush, Options{Linger: LingerNone, Security: Security{PlainUsername: fmt.Sprint(i), PlainPassword: "x"}})
		must(t, push.Connect(pull.LastEndpoint()))
	}
	for range clients {
		seen.Await(t, EventHandshakeSucceeded)
	}
	if n := authenticated.Load(); n != clients {
		t.Errorf("%d calls for %d clients", n, clients)
	}
	if n := peak.Load(); n > most {
		t.Errorf("%d calls at once, the bound is %d", n, most)
	}
	if n := seen.Count(EventHandshakeFailed); n > 0 {
		t.Errorf("%d handshakes failed", n)
	}
}

// TestStalledHandshakesGiveWay: peers that stall, before or after their first bytes, give way to
// newcomers long before the end of their time; one that is being authenticated does not.
func TestStalledHandshakesGiveWay(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	asked, verdict := make(chan struct{}), make(chan struct{})
	router := open(t, NewRouter, Options{MaxHandshakes: 4, HandshakeTimeout: time.Hour, Monitor: seen.Tell, Security: Security{
		PlainServer: true,
		Authenticate: func(_ context.Context, r AuthRequest) (User, error) {
			if r.Username() == "patient" {
				close(asked)
				<-verdict
			}
			return User{ID: r.Username()}, nil
		},
	}})
	router.core.Tuning.HandshakeGrace = 20 * time.Millisecond
	must(t, router.Bind(ctx, anyPort))
	client := func(name string) *Dealer {
		d := open(t, NewDealer, quick(Options{Identity: []byte(name), Security: Security{PlainUsername: name}}))
		must(t, d.Connect(router.LastEndpoint()))
		return d
	}
	patient := client("patient")
	<-asked
	plain := zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "PLAIN"})
	for i := range 24 {
		r := dialRaw(t, router.LastEndpoint())
		_, _ = r.Conn.Write([][]byte{nil, plain[:10], plain, append(plain[:64:64], zmtp.FlagCommand, 9)}[i%4]) // it may be evicted already
	}
	for i := range 3 {
		name := fmt.Sprint("client", i)
		must(t, client(name).Send(ctx, []byte("x")))
		wantRecv(t, func() (Message, error) { return router.Recv(ctx) }, name, "x")
	}
	close(verdict)
	must(t, patient.Send(ctx, []byte("x")))
	wantRecv(t, func() (Message, error) { return router.Recv(ctx) }, "patient", "x")
	for _, e := range seen.All() {
		if e.Kind == EventHandshakeFailed && !errors.Is(e.Err, ErrHandshakeTimeout) {
			t.Errorf("%v", e.Err)
		}
	}
}

// TestNewcomerWaitsForTheAuthenticator: while all handshakes wait for the authenticator a newcomer
// waits too, and gets in as soon as one of them has ended.
func TestNewcomerWaitsForTheAuthenticator(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	var mu sync.Mutex
	silent := map[string]chan struct{}{"first": make(chan struct{}), "second": make(chan struct{})}
	asked := make(chan string, 3)
	router := open(t, NewRouter, Options{MaxHandshakes: 2, Monitor: seen.Tell, Security: Security{
		PlainServer: true,
		Authenticate: func(ctx context.Context, r AuthRequest) (User, error) {
			mu.Lock()
			verdict := silent[r.Username()]
			mu.Unlock()
			asked <- r.Username()
			if verdict != nil {
				select {
				case <-verdict:
				case <-ctx.Done():
				}
			}
			return User{}, nil
		},
	}})
	router.core.Tuning.HandshakeGrace = time.Millisecond
	must(t, router.Bind(ctx, anyPort))
	var all []*raw
	come := func(name string) {
		r := dialRaw(t, router.LastEndpoint())
		r.Send(plainHello(name))
		all = append(all, r)
	}
	come("first")
	come("second")
	got := map[string]bool{<-asked: true, <-asked: true}
	if !got["first"] || !got["second"] {
		t.Fatalf("asked for %v", got)
	}
	come("third") // not before: a handshake that stalls for a moment would make room for it
	meanwhile(t)
	select {
	case name := <-asked:
		t.Errorf("asked for %s beyond MaxHandshakes", name)
	default:
	}
	all[0].Conn.Close() // a peer that leaves makes room at once
	if name := <-asked; name != "third" {
		t.Errorf("asked for %q", name)
	}
	if e := seen.Await(t, EventHandshakeFailed); e.Remote != all[0].Conn.LocalAddr().String() {
		t.Errorf("%+v", e)
	}
	within(t, "Close", func() { must(t, router.Close()) })
}

// plainHello is a PLAIN client's greeting and HELLO.
func plainHello(name string) []byte {
	data := append([]byte{byte(len(name))}, name...)
	return zmtp.AppendCommand(zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: "PLAIN"}), "HELLO", append(data, 0))
}

// TestPeerLeavesWhileAuthenticated: a peer that goes away while it is authenticated is noticed at once,
// with libzmq's number for it, and the authenticator is told.
func TestPeerLeavesWhileAuthenticated(t *testing.T) {
	t.Parallel()
	for _, asks := range []string{"Authenticate", "handler"} {
		for name, says := range map[string][]byte{"PLAIN": plainHello("user"), "NULL": greeting(1)} {
			t.Run(name+"/"+asks, func(t *testing.T) {
				t.Parallel()
				seen := newEvents()
				names := new(Inproc)
				security := Security{PlainServer: name == "PLAIN", ZAPDomain: "domain"}
				handler := open(t, NewRouter, Options{Inproc: names})
				must(t, handler.Bind(testContext(t), zapEndpoint))
				asked, told := make(chan struct{}), make(chan struct{})
				if asks == "Authenticate" {
					security.Authenticate = func(ctx context.Context, _ AuthRequest) (User, error) {
						close(asked)
						<-ctx.Done()
						close(told)
						return User{}, nil
					}
				}
				router := bind(t, NewRouter, Options{Security: security, Inproc: names, HandshakeTimeout: time.Hour, Monitor: seen.Tell})
				r := dialRaw(t, router.LastEndpoint())
				r.Send(says)
				if security.Authenticate != nil {
					<-asked
				} else {
					_, err := handler.Recv(testContext(t))
					must(t, err)
				}
				// All of it read, so that this is no reset.
				_, err := io.ReadFull(r.In, make([]byte, zmtp.GreetingSize))
				must(t, err)
				r.Conn.Close()
				e := seen.Await(t, EventHandshakeFailed)
				if number, value := e.Code(); number != 0x0800 || value != uint32(syscall.EPIPE) {
					t.Errorf("%#x %d, %v", number, value, e.Err)
				}
				if security.Authenticate != nil {
					<-told
				}
			})
		}
	}
}

// TestZAPRequestsDoNotPileUp: requests for peers that have gone do not pile up at a ZAP handler
// that receives nothing.
func TestZAPRequestsDoNotPileUp(t *testing.T) {
	t.Parallel()
	const most = 4 // calls at a time, each of which may be about to send its request
	names := new(Inproc)
	handler := open(t, NewRouter, Options{Inproc: names, RecvHWM: 10})
	must(t, handler.Bind(testContext(t), zapEndpoint))
	seen := newEvents()
	pull := bind(t, NewPull, Options{Inproc: names, MaxHandshakes: most, Monitor: seen.Tell, Security: Security{PlainServer: true}})
	listed := func() int {
		return handler.core.In.Status().Ready
	}
	for i := range 100 {
		r := dialRaw(t, pull.LastEndpoint())
		r.Send(plainHello("gone"))
		if i%2 == 0 { // else it leaves before its request is there, or about then
			eventually(t, "the request", func() bool { return listed() > 0 })
		}
		r.Conn.Close()
		seen.Await(t, EventHandshakeFailed)
	}
	eventually(t, "nothing is queued", func() bool { return listed() == 0 })
	// The handler is asked for a peer that stays, behind no others but those whose
	// requests were in flight when they left.
	r := dialRaw(t, pull.LastEndpoint())
	r.Send(plainHello("here"))
	for late := 0; ; late++ {
		m, err := handler.Recv(testContext(t))
		must(t, err)
		if string(m[8]) == "here" {
			break
		}
		if string(m[8]) != "gone" || late == most {
			t.Fatalf("%q", m)
		}
	}
}

// TestCallsOfADeafAuthenticatorAreBounded: calls of an authenticator that ignores its context are
// bounded, with any number of peers that come and go.
func TestCallsOfADeafAuthenticatorAreBounded(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const most = 4
	var calls atomic.Int32
	release := make(chan struct{})
	seen := newEvents()
	router := bind(t, NewRouter, Options{MaxHandshakes: most, Monitor: seen.Tell, Security: Security{
		PlainServer: true,
		Authenticate: func(context.Context, AuthRequest) (User, error) {
			calls.Add(1)
			<-release
			return User{}, nil
		},
	}})
	for i := range 10 * most {
		r := dialRaw(t, router.LastEndpoint())
		r.Send(plainHello("gone"))
		if i < most {
			eventually(t, "it is authenticated", func() bool { return calls.Load() == int32(i+1) })
		}
		r.Conn.Close()
		seen.Await(t, EventHandshakeFailed)
	}
	if n := calls.Load(); n != most {
		t.Errorf("%d calls, the bound is %d", n, most)
	}
	close(release)
	dealer := open(t, NewDealer, Options{Identity: []byte("me"), Security: Security{PlainUsername: "here"}})
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("x")))
	wantRecv(t, func() (Message, error) { return router.Recv(ctx) }, "me", "x")
}

// TestBytesDuringAuthenticationAreKept: bytes that a peer sends while it is authenticated are kept, up to the
// size of a command; more ends the connection.
func TestBytesDuringAuthenticationAreKept(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	asked, verdict := make(chan struct{}, 2), make(chan struct{})
	router := bind(t, NewRouter, Options{Monitor: seen.Tell, HandshakeTimeout: time.Hour, Security: Security{
		Authenticate: func(ctx context.Context, _ AuthRequest) (User, error) {
			asked <- struct{}{}
			select {
			case <-verdict:
			case <-ctx.Done():
			}
			return User{ID: "user"}, nil
		},
	}})
	r := dialRaw(t, router.LastEndpoint())
	r.Send(greeting(1))
	<-asked
	for _, b := range ready("DEALER", []byte("me")) {
		r.Send([]byte{b})
	}
	flood := dialRaw(t, router.LastEndpoint())
	flood.Send(greeting(1))
	<-asked
	_, _ = flood.Conn.Write(make([]byte, 2*engine.MaxHandshakeCommand)) // it may be refused in the middle
	if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, zmtp.ErrTooLarge) {
		t.Errorf("%v", e.Err)
	}
	close(verdict)
	r.Greeted()
	r.Send(wire("x"))
	wantRecv(t, func() (Message, error) { return router.Recv(ctx) }, "me", "x")
}

// welcoming is a ROUTER whose new peers wait, after their handshake, for the
// application to take the messages of former peers.
func welcoming(t *testing.T, o Options) (r *Router, waits func()) {
	o.Notify = NotifyConnect
	r = open(t, NewRouter, o)
	r.core.Tuning.HandshakeGrace = time.Millisecond
	must(t, r.Bind(testContext(t), anyPort))
	var left queue.Inqueue
	left.Init(false)
	b := queue.Batch{Chunk: buf.Get(1), Spans: make([]buf.Span, 1), From: new(queue.Conn), Cost: DefaultHWMBytes}
	r.core.In.Put(&left, &b, nil)
	r.core.In.Leave(&left)
	return r, func() {
		t.Helper()
		eventually(t, "a peer waits for the application", func() bool { return r.core.In.Status().Newcomers > 0 })
	}
}

// TestAdmissionWelcome: a peer whose handshake has succeeded, and that waits for the
// application, is not evicted for a newcomer.
func TestAdmissionWelcome(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router, waits := welcoming(t, Options{MaxHandshakes: 1, Monitor: seen.Tell})
	connect := func() {
		d := open(t, NewDealer, Options{})
		must(t, d.Connect(router.LastEndpoint()))
	}
	connect()
	waits()
	connect()
	meanwhile(t) // for the newcomer to do harm
	var b queue.Batch
	must(t, router.core.In.TakeBatch(testContext(t), nil, &b))
	for range 2 {
		_, err := router.Recv(testContext(t))
		must(t, err)
	}
	if n := seen.Count(EventAccepted); n != 2 {
		t.Errorf("two clients connected %d times", n)
	}
}

// TestAdmissionUnwelcome: the monitor is told how each accepted connection ends, also
// of one that was waiting for the application.
func TestAdmissionUnwelcome(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router, waits := welcoming(t, Options{Monitor: seen.Tell})
	dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
	waits()
	must(t, router.Unbind(router.LastEndpoint()))
	if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrClosed) {
		t.Errorf("%v", e.Err)
	}
}

// TestPeersThatAnnounceMuch: what peers announce is bounded over all connections of a socket,
// those that announce no more than usual are accepted all the same, and what a connection
// announced counts until its end.
func TestPeersThatAnnounceMuch(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	pull := open(t, NewPull, Options{Monitor: seen.Tell})
	pull.core.Tuning.MaxAnnounced = 32 << 10
	must(t, pull.Bind(ctx, anyPort))
	connect := func(announced int) *Push {
		push := open(t, NewPush, Options{
			Linger:   LingerNone,
			Metadata: map[string]string{"X-Large": strings.Repeat("x", announced)},
		})
		must(t, push.Connect(pull.LastEndpoint()))
		return push
	}
	var first *Push
	for i := range 4 {
		push := connect(8000)
		if i == 0 {
			first = push
		}
		seen.Await(t, EventHandshakeSucceeded)
	}
	connect(8000)
	if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrTooManyConnections) {
		t.Errorf("one too many: %v", e.Err)
	}
	connect(400)
	seen.Await(t, EventHandshakeSucceeded)
	must(t, first.Close())
	seen.Await(t, EventHandshakeSucceeded) // of the one that was refused, and tries again
}
