package sockets

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"clustermap/zmtp"
)

// pipeNet connects sockets with net.Pipe, by address.
type pipeNet struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var errPipeClosed = errors.New("the pipe listener is closed")

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, errPipeClosed // not net.ErrClosed, on purpose
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return nil }

func (n *pipeNet) listen(_ context.Context, network, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[network+" "+address] = l
	return l, nil
}

func (n *pipeNet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[network+" "+address]
	n.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
	case <-ctx.Done():
	}
	ours.Close()
	theirs.Close()
	return nil, syscall.ECONNREFUSED
}

func newPipeNet() *pipeNet { return &pipeNet{listeners: map[string]*pipeListener{}} }

// hooked returns options that connect over a net.Pipe.
func (n *pipeNet) hooked(o Options) Options {
	o.Dial, o.Listen = n.dial, n.listen
	return o
}

// roundTrips exchanges messages of several sizes in both directions.
func roundTrips(t *testing.T, dealer *Dealer, router *Router) {
	t.Helper()
	ctx := testContext(t)
	for i, size := range []int{0, 1, 300, 10_000, 300_000, 3 << 20} {
		body := bytes.Repeat([]byte{byte(i)}, size)
		must(t, dealer.Send(ctx, body, []byte("last")))
		m, err := router.Recv(ctx)
		must(t, err)
		if len(m) != 3 || !bytes.Equal(m[1], body) {
			t.Fatalf("size %d: %d frames", size, len(m))
		}
		must(t, router.Send(ctx, m...))
		m, err = dealer.Recv(ctx)
		must(t, err)
		if len(m) != 2 || !bytes.Equal(m[0], body) || string(m[1]) != "last" {
			t.Fatalf("size %d: %d frames come back", size, len(m))
		}
	}
}

// TestHooksPipe: sockets work over net.Pipe, whose writes last until the other side
// reads, with every mechanism and as tcp and ipc endpoints.
func TestHooksPipe(t *testing.T) {
	t.Parallel()
	server, client := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
	for name, security := range map[string][2]Security{
		"NULL":  {},
		"PLAIN": {{PlainServer: true, Authenticate: plainAnyone}, {PlainUsername: "u", PlainPassword: "p"}},
		"CURVE": {{CurveServer: true, CurveSecretKey: server.Secret, Authenticate: plainAnyone}, {CurveServerKey: server.Public, CurveSecretKey: client.Secret}},
	} {
		for _, endpoint := range []string{"tcp://in.memory:1", "ipc://in/memory"} {
			t.Run(name+" "+endpoint[:3], func(t *testing.T) {
				t.Parallel()
				n := newPipeNet()
				router := open(t, NewRouter, n.hooked(Options{Security: security[0], HeartbeatInterval: time.Second, HeartbeatTimeout: hang}))
				must(t, router.Bind(testContext(t), endpoint))
				if got := router.LastEndpoint(); got != endpoint {
					t.Errorf("the endpoint is %s, want %s", got, endpoint)
				}
				large := map[string]string{"X-Large": strings.Repeat("x", 4000)} // more than one read of a handshake
				dealer := open(t, NewDealer, n.hooked(Options{Security: security[1], Metadata: large}))
				must(t, dealer.Connect(endpoint))
				roundTrips(t, dealer, router)
			})
		}
	}
}

// plainAnyone accepts every peer.
func plainAnyone(context.Context, AuthRequest) (User, error) { return User{}, nil }

// tlsHooks returns the options of a server and of its client, which connect over TLS.
func tlsHooks(t *testing.T) (server, client Options) {
	t.Helper()
	s := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	serverConfig := &tls.Config{Certificates: s.TLS.Certificates}
	server.Listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return tls.NewListener(l, serverConfig), nil
	}
	d := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}}
	client.Dial = d.DialContext
	return server, client
}

// TestHooksTLS: sockets work over TLS at both ends. Messages sent before Close arrive.
func TestHooksTLS(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	serving, dialing := tlsHooks(t)
	router := bind(t, NewRouter, serving)
	dealer := open(t, NewDealer, dialing)
	must(t, dealer.Connect(router.LastEndpoint()))
	roundTrips(t, dealer, router)
	_, peer, err := func() (Message, *Peer, error) {
		must(t, dealer.Send(ctx, []byte("who")))
		return router.RecvFrom(ctx)
	}()
	must(t, err)
	if host, _, err := net.SplitHostPort(peer.RemoteAddr()); err != nil || host != "127.0.0.1" {
		t.Errorf("the remote address is %q", peer.RemoteAddr())
	}
	must(t, router.SendTo(ctx, peer, make([]byte, 4<<20)))
	closed := closes(router)
	m, err := dealer.Recv(ctx)
	must(t, err)
	if len(m[0]) != 4<<20 {
		t.Errorf("%d bytes", len(m[0]))
	}
	ends(t, "Close", closed)
}

// TestHooksTLSRefused: a peer that does not speak TLS, or does not trust the
// certificate, is no peer, and the socket goes on.
func TestHooksTLSRefused(t *testing.T) {
	t.Parallel()
	serving, dialing := tlsHooks(t)
	events := newEvents()
	serving.Monitor = events.Tell
	router := bind(t, NewRouter, serving)

	plain := open(t, NewDealer, quick(Options{}))
	must(t, plain.Connect(router.LastEndpoint()))
	e := events.Await(t, EventHandshakeFailed)
	var record tls.RecordHeaderError
	if !errors.As(e.Err, &record) {
		t.Errorf("a peer without TLS: %v", e.Err)
	}
	must(t, plain.Close())

	failed := newEvents()
	distrust := open(t, NewDealer, quick(Options{Monitor: failed.Tell, Dial: (&tls.Dialer{Config: &tls.Config{ServerName: "127.0.0.1"}}).DialContext}))
	must(t, distrust.Connect(router.LastEndpoint()))
	e = failed.Await(t, EventConnectFailed)
	var unknown *tls.CertificateVerificationError
	if !errors.As(e.Err, &unknown) {
		t.Errorf("an unknown certificate: %v", e.Err)
	}
	must(t, distrust.Close())

	dealer := open(t, NewDealer, dialing)
	must(t, dealer.Connect(router.LastEndpoint()))
	roundTrips(t, dealer, router)
}

// TestHooksInherited: a listener that comes as a file, as from a service manager, and
// a connection that comes as a file. The fast path of tcp applies to both.
func TestHooksInherited(t *testing.T) {
	t.Parallel()
	before, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	file, err := before.(*net.TCPListener).File()
	if runtime.GOOS == "windows" {
		t.Skip("listeners cannot be made from files on Windows")
	}
	must(t, err)
	defer file.Close()
	address := before.Addr().String()
	must(t, before.Close()) // the descriptor goes on listening

	router := open(t, NewRouter, Options{Listen: func(context.Context, string, string) (net.Listener, error) { return net.FileListener(file) }})
	must(t, router.Bind(testContext(t), "tcp://*:*"))
	if got := router.LastEndpoint(); got != "tcp://"+address {
		t.Errorf("the endpoint is %s, want that of the listener, tcp://%s", got, address)
	}
	dealer := open(t, NewDealer, Options{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		defer nc.Close()
		f, err := nc.(*net.TCPConn).File()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return net.FileConn(f)
	}})
	must(t, dealer.Connect("tcp://elsewhere:1"))
	roundTrips(t, dealer, router)

	err = router.Bind(testContext(t), "tcp://*:2") // again the same listener
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the same address once more: %v", err)
	}
	must(t, router.Unbind("tcp://"+address))
}

// TestHooksIPC: Listen gets the path of an ipc endpoint, also that of a wildcard,
// whose directory is removed.
func TestHooksIPC(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var network, path string
	router := open(t, NewRouter, Options{Listen: func(ctx context.Context, n, p string) (net.Listener, error) {
		network, path = n, p
		return new(net.ListenConfig).Listen(ctx, n, p)
	}})
	err := router.Bind(ctx, "ipc://*")
	if errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Skip("no Unix domain sockets here")
	}
	must(t, err)
	if network != "unix" || router.LastEndpoint() != "ipc://"+path {
		t.Errorf("Listen was called with %q and %q for %s", network, path, router.LastEndpoint())
	}
	dealer := open(t, NewDealer, Options{Dial: new(net.Dialer).DialContext})
	must(t, dealer.Connect(router.LastEndpoint()))
	roundTrips(t, dealer, router)
	must(t, router.Close())
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

// TestHooksErrors: errors of the functions are those of Bind and of the monitor's
// events, and a socket survives results that they should not return.
func TestHooksErrors(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	failure := errors.New("no network today")
	var calls atomic.Int32
	events := newEvents()
	s := open(t, NewDealer, quick(Options{
		Monitor: events.Tell,
		Listen:  func(context.Context, string, string) (net.Listener, error) { return nil, failure },
		Dial: func(context.Context, string, string) (net.Conn, error) {
			if calls.Add(1) > 1 {
				return nil, nil // neither a connection nor an error
			}
			return nil, failure
		},
	}))
	for _, endpoint := range []string{anyPort, "ipc://a/b", "ipc://*"} {
		if err := s.Bind(ctx, endpoint); !errors.Is(err, failure) {
			t.Errorf("Bind to %s: %v", endpoint, err)
		}
	}
	var invalid *EndpointError
	if err := s.Connect("tcp://127.0.0.1:*;127.0.0.1:9"); !errors.As(err, &invalid) {
		t.Errorf("a source address: %v", err)
	}
	must(t, s.Connect("tcp://nowhere:1"))
	if e := events.Await(t, EventConnectFailed); e.Err != failure {
		t.Errorf("the event has the error %v", e.Err)
	}
	if e := events.Await(t, EventConnectFailed); e.Err == nil {
		t.Error("no connection and no error is no failure")
	}
	none := open(t, NewDealer, Options{Listen: func(context.Context, string, string) (net.Listener, error) { return nil, nil }})
	if err := none.Bind(ctx, anyPort); err == nil {
		t.Error("no listener and no error is no failure")
	}
}

// TestHooksClose: Close ends a Dial, a handshake and a connection that are in
// progress, and waits for them.
func TestHooksClose(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)

	called, returned := make(chan struct{}), make(chan struct{})
	waits := open(t, NewDealer, Options{Linger: LingerNone, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(called)
		<-ctx.Done()
		close(returned)
		return nil, ctx.Err()
	}})
	must(t, waits.Connect("tcp://x:1"))
	<-called
	ends(t, "Close while Dial waits", closes(waits))
	select {
	case <-returned:
	default:
		t.Error("Close does not wait for Dial")
	}

	n := newPipeNet() // of a peer that neither reads nor writes
	l, err := n.listen(ctx, "tcp", "x:1")
	must(t, err)
	defer l.Close()
	silent := open(t, NewDealer, n.hooked(Options{Linger: LingerNone}))
	must(t, silent.Connect("tcp://x:1"))
	nc, err := l.Accept()
	must(t, err)
	defer nc.Close()
	ends(t, "Close during a handshake", closes(silent))

	router := open(t, NewRouter, n.hooked(Options{}))
	must(t, router.Bind(ctx, "tcp://y:1"))
	dealer := open(t, NewDealer, n.hooked(Options{}))
	must(t, dealer.Connect("tcp://y:1"))
	must(t, dealer.Send(ctx, []byte("x")))
	_, err = router.Recv(ctx)
	must(t, err)
	ends(t, "Close of a connection", closes(dealer))
	ends(t, "Close of a listener whose error is its own", closes(router))
}

// TestHooksHandshakeTimeout: a peer that does not read ends with the time for the
// handshake, though its connection has no buffer.
func TestHooksHandshakeTimeout(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	n := newPipeNet()
	events := newEvents()
	router := open(t, NewRouter, n.hooked(Options{HandshakeTimeout: 50 * time.Millisecond, Monitor: events.Tell}))
	must(t, router.Bind(ctx, "tcp://x:1"))
	nc, err := n.dial(ctx, "tcp", "x:1")
	must(t, err)
	defer nc.Close()
	if e := events.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrHandshakeTimeout) {
		t.Errorf("the error is %v", e.Err)
	}
}

// TestHooksTransformed: a connection that embeds a *net.TCPConn, and so has its
// methods, is read and written by its own methods.
func TestHooksTransformed(t *testing.T) {
	t.Parallel()
	router := open(t, NewRouter, Options{Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		return flippedListener{l}, err
	}})
	must(t, router.Bind(testContext(t), anyPort))
	dealer := open(t, NewDealer, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return flipped{nc.(*net.TCPConn)}, nil
	}})
	must(t, dealer.Connect(router.LastEndpoint()))
	roundTrips(t, dealer, router)
}

type flippedListener struct{ net.Listener }

func (l flippedListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return flipped{nc.(*net.TCPConn)}, nil
}

// flipped inverts the bytes that it writes and reads.
type flipped struct{ *net.TCPConn }

func (f flipped) Read(b []byte) (int, error) {
	n, err := f.TCPConn.Read(b)
	flip(b[:n])
	return n, err
}

func (f flipped) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	flip(b)
	return f.TCPConn.Write(b)
}

func flip(b []byte) {
	for i := range b {
		b[i] ^= 0xff
	}
}

// emptyListener returns no connection the first time.
type emptyListener struct {
	net.Listener
	calls atomic.Int32
}

func (l *emptyListener) Accept() (net.Conn, error) {
	if l.calls.Add(1) == 1 {
		return nil, nil
	}
	return l.Listener.Accept()
}

// TestHooksAcceptNothing: a listener that returns neither a connection nor an error is
// reported, and asked again.
func TestHooksAcceptNothing(t *testing.T) {
	t.Parallel()
	events := newEvents()
	router := bind(t, NewRouter, Options{Monitor: events.Tell, Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		return &emptyListener{Listener: l}, err
	}})
	if e := events.Await(t, EventAcceptFailed); e.Err == nil {
		t.Error("the event has no error")
	}
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect(router.LastEndpoint()))
	roundTrips(t, dealer, router)
}

// heldConn is a connection of which some method waits until a deadline in the past is set.
type heldConn struct {
	net.Conn
	address, closeWrite bool // which
	once                sync.Once
	released            chan struct{}
}

func hold(nc net.Conn) *heldConn { return &heldConn{Conn: nc, released: make(chan struct{})} }

func (c *heldConn) SetDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now()) {
		c.once.Do(func() { close(c.released) })
	}
	return c.Conn.SetDeadline(t)
}

func (c *heldConn) RemoteAddr() net.Addr {
	if c.address {
		<-c.released
	}
	return c.Conn.RemoteAddr()
}

func (c *heldConn) CloseWrite() error {
	if c.closeWrite {
		<-c.released
	}
	return nil
}

// heldListener returns connections of which the first has the given method held.
type heldListener struct {
	net.Listener
	calls atomic.Int32
}

func (l *heldListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := hold(nc)
	c.address = l.calls.Add(1) == 1
	return c, nil
}

// TestHooksSlowAddress: a connection that learns its address from bytes that do not come
// keeps neither the listener nor Close waiting.
func TestHooksSlowAddress(t *testing.T) {
	t.Parallel()
	router := bind(t, NewRouter, Options{Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		return &heldListener{Listener: l}, err
	}})
	silent, err := net.Dial("tcp", strings.TrimPrefix(router.LastEndpoint(), "tcp://"))
	must(t, err)
	defer silent.Close()
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect(router.LastEndpoint()))
	roundTrips(t, dealer, router)
	ends(t, "Close", closes(router))
}

// TestHooksSlowCloseWrite: Linger also limits the time that CloseWrite takes.
func TestHooksSlowCloseWrite(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{Linger: 50 * time.Millisecond, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := hold(nc)
		c.closeWrite = true
		return c, nil
	}})
	must(t, push.Connect(pull.LastEndpoint()))
	must(t, push.Send(ctx, []byte("x")))
	_, err := pull.Recv(ctx)
	must(t, err)
	ends(t, "Close", closes(push))
}
