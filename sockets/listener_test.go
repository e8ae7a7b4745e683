package sockets

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestBindWildcards: LastEndpoint returns an endpoint to connect to.
func TestBindWildcards(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, c := range []struct{ bind, host string }{
		{"tcp://127.0.0.1:*", "127.0.0.1"},
		{"tcp://127.0.0.1:0", "127.0.0.1"},
		{"tcp://localhost:*", "127.0.0.1"},
		{"tcp://*:*", "0.0.0.0"},
		{"tcp://0.0.0.0:*", "0.0.0.0"},
		{"tcp://lo:*", "127.0.0.1"},
		{"tcp://[::1]:*", "[::1]"},
		{"tcp://[::]:*", "[::]"},
	} {
		router := open(t, NewRouter, Options{})
		err := router.Bind(ctx, c.bind)
		if strings.Contains(c.bind, "[::") && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			t.Logf("no IPv6 here: %v", err)
			continue
		}
		if strings.Contains(c.bind, "lo:") {
			if _, none := net.InterfaceByName("lo"); none != nil {
				continue
			}
		}
		must(t, err)
		host, port, ok := cutLast(strings.TrimPrefix(router.LastEndpoint(), "tcp://"))
		if !ok || host != c.host || port == "0" || port == "*" {
			t.Errorf("%s is bound as %s", c.bind, router.LastEndpoint())
		}
		dealer := open(t, NewDealer, Options{})
		if host == "0.0.0.0" {
			host = "localhost"
		}
		must(t, dealer.Connect("tcp://"+host+":"+port))
		must(t, dealer.Send(ctx, []byte("x")))
		_, err = router.Recv(ctx)
		must(t, err)
	}
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// TestBindMany: one socket on many endpoints, and many sockets to it.
func TestBindMany(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := open(t, NewRouter, Options{})
	endpoints := map[string]bool{}
	for range 5 {
		must(t, router.Bind(ctx, anyPort))
		endpoints[router.LastEndpoint()] = true
	}
	if len(endpoints) != 5 {
		t.Fatalf("endpoints %v", endpoints)
	}
	n := 0
	for e := range endpoints {
		for range 2 {
			dealer := open(t, NewDealer, Options{})
			must(t, dealer.Connect(e))
			must(t, dealer.Send(ctx, []byte("x")))
			n++
		}
	}
	for range n {
		_, err := router.Recv(ctx)
		must(t, err)
	}
	if got := len(router.Peers()); got != n {
		t.Errorf("%d peers, want %d", got, n)
	}
}

// TestBindErrors: a port in use, an address that is not ours, a name that does
// not exist, a context that has ended.
func TestBindErrors(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	first := bind(t, NewPub, Options{})
	second := open(t, NewPub, Options{})
	err := second.Bind(ctx, first.LastEndpoint())
	var typed *net.OpError
	if !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &typed) {
		t.Errorf("port in use: %v", err)
	}
	if err := first.Bind(ctx, first.LastEndpoint()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("own port in use: %v", err)
	}
	if err := second.Bind(ctx, "tcp://192.0.2.1:*"); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("foreign address: %v", err)
	}
	if err := second.Bind(ctx, "tcp://name.invalid:*"); err == nil {
		t.Error("bound a name that does not exist")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := second.Bind(ended, "tcp://localhost:*"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	must(t, second.Bind(ctx, anyPort)) // the socket still works
}

// TestUnbind: the port is free at once, connections accepted there end, others
// stay.
func TestUnbind(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := open(t, NewRouter, Options{Monitor: seen.Tell})
	gone := freePort(t)
	must(t, router.Bind(ctx, gone))
	must(t, router.Bind(ctx, anyPort))
	stays := router.LastEndpoint()
	a := dialRaw(t, gone).Greet("DEALER", []byte("a"))
	half := dialRaw(t, gone)
	half.Send(greeting(1)) // in the middle of its handshake
	b := dialRaw(t, stays).Greet("DEALER", []byte("b"))
	b.Sync()

	must(t, router.Unbind(gone))
	a.Ended()
	half.Ended()
	if e := seen.Await(t, EventListenerClosed); e.Endpoint != gone {
		t.Errorf("%+v", e)
	}
	must(t, router.Bind(ctx, gone))
	dialRaw(t, gone).Greet("DEALER", []byte("a")).Send(wire("back"))
	wants(t, router, "a back")
	b.Sync()

	for _, e := range []string{"tcp://127.0.0.1:1", "nonsense", ""} {
		if err := router.Unbind(e); !errors.Is(err, ErrNotBound) {
			t.Errorf("Unbind(%q): %v", e, err)
		}
	}
	must(t, router.Unbind(stays))
	if err := router.Unbind(stays); !errors.Is(err, ErrNotBound) {
		t.Errorf("Unbind again: %v", err)
	}
}

// TestMaxHandshakes: at the limit silent connections are replaced, the longest stalled
// first, and correct peers are accepted in any number.
func TestMaxHandshakes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, NewRouter, Options{MaxHandshakes: 3, Monitor: seen.Tell})
	var silent []*raw
	for range 5 {
		silent = append(silent, dialRaw(t, router.LastEndpoint()))
		seen.Await(t, EventAccepted)
	}
	silent[0].Ended()
	silent[1].Ended()
	for range 2 {
		e := seen.Await(t, EventHandshakeFailed)
		var typed *PeerError
		if !errors.Is(e.Err, ErrHandshakeTimeout) || !errors.As(e.Err, &typed) {
			t.Errorf("%+v", e)
		}
	}
	silent[2].Greet("DEALER", nil).Sync() // still welcome
	for range 10 {
		dealer := open(t, NewDealer, Options{})
		must(t, dealer.Connect(router.LastEndpoint()))
		must(t, dealer.Send(ctx, []byte("x")))
		_, err := router.Recv(ctx)
		must(t, err)
	}
	// All those are established, and count no longer.
	dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil).Sync()
}

// TestHandshakeTimeout: a connection is closed if its handshake takes too long, even if
// the peer keeps sending bytes.
func TestHandshakeTimeout(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := bind(t, NewRouter, Options{HandshakeTimeout: 50 * time.Millisecond, Monitor: seen.Tell})
	dialRaw(t, router.LastEndpoint()).Ended()
	trickle := dialRaw(t, router.LastEndpoint())
	go func() {
		for _, b := range greeting(1) {
			if _, err := trickle.Conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	trickle.Ended()
	for range 2 {
		if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrHandshakeTimeout) {
			t.Errorf("%+v", e)
		}
	}
	// The bound is for the handshake only.
	r := dialRaw(t, router.LastEndpoint())
	for r.TryGreet("DEALER", nil) != nil || r.TrySync() != nil {
		r = dialRaw(t, router.LastEndpoint()) // on a busy machine one of us may have been too slow
	}
	for range 2 { // the time is over for one that has connected later
		dialRaw(t, router.LastEndpoint()).Ended()
	}
	r.Sync()
}

// failing is a listener whose accept fails now and then.
type failing struct {
	net.Listener
	failures atomic.Int32
}

var errNoDescriptors = errors.New("too many open files")

func (f *failing) Accept() (net.Conn, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, errNoDescriptors
	}
	return f.Listener.Accept()
}

// TestAcceptFails: a listener reports a failure, pauses, and continues. It can be closed
// during the pause.
func TestAcceptFails(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	router := open(t, NewRouter, Options{Monitor: seen.Tell})
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &failing{Listener: nl}
	f.failures.Store(3)
	endpoint := "tcp://" + nl.Addr().String()
	must(t, router.core.Serve(f, endpoint))
	for range 3 {
		if e := seen.Await(t, EventAcceptFailed); !errors.Is(e.Err, errNoDescriptors) {
			t.Errorf("%+v", e)
		}
	}
	r := dialRaw(t, endpoint).Greet("DEALER", nil)
	r.Sync()
	f.failures.Store(1000)
	r2 := dialRaw(t, endpoint) // takes the accept that is under way
	for range 6 {
		seen.Await(t, EventAcceptFailed)
	}
	within(t, "Close in a pause", func() { must(t, router.Close()) })
	_, _ = io.Copy(io.Discard, r2.Conn)
}
