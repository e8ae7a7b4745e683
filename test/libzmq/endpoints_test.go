package libzmq

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/ipcpath"
	"clustermap/internal/sockettest"
	"clustermap/sockets"
)

// TestLibzmq_reqrep_ipc: both forms carry messages both ways, with either side first, and
// leave nothing behind.
func TestLibzmq_reqrep_ipc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, first := range []string{"bind", "connect"} {
		endpoints := []string{"ipc://" + sockettest.SocketPath(t)}
		if runtime.GOOS == "linux" {
			endpoints = append(endpoints, "ipc://"+sockettest.AbstractName(t))
		}
		for _, e := range endpoints {
			router := open(t, sockets.NewRouter, sockets.Options{})
			dealer := open(t, sockets.NewDealer, quick(sockets.Options{}))
			if first == "bind" {
				must(t, router.Bind(ctx, e))
			}
			must(t, dealer.Connect(e))
			if first == "connect" {
				must(t, router.Bind(ctx, e))
			}
			if got := router.LastEndpoint(); got != e {
				t.Errorf("%s is bound as %s", e, got)
			}
			echo(t, ctx, dealer, router)
			must(t, router.Close())
			must(t, dealer.Close())
			if path := strings.TrimPrefix(e, "ipc://"); path[0] != '@' && sockettest.Exists(path) {
				t.Errorf("%s stays", path)
			}
		}
	}
}

// TestLibzmq_ipc_wildcard: a wildcard is a socket in a directory of its own,
// of which nothing is left after Unbind, or Close.
func TestLibzmq_ipc_wildcard(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := open(t, sockets.NewRouter, sockets.Options{})
	must(t, router.Bind(ctx, "ipc://*"))
	one := router.LastEndpoint()
	must(t, router.Bind(ctx, "ipc://*"))
	other := router.LastEndpoint()
	if one == other || !strings.HasPrefix(one, "ipc://"+os.TempDir()) {
		t.Errorf("bound as %s and %s", one, other)
	}
	dealer := open(t, sockets.NewDealer, sockets.Options{})
	must(t, dealer.Connect(one))
	echo(t, ctx, dealer, router)
	if err := router.Unbind("ipc://*"); !errors.Is(err, sockets.ErrNotBound) {
		t.Errorf("Unbind by the wildcard: %v", err)
	}
	for _, e := range []string{one, other} {
		dir := filepath.Dir(strings.TrimPrefix(e, "ipc://"))
		info, err := os.Stat(dir)
		must(t, err)
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
			t.Errorf("mode of %s is %v", dir, info.Mode())
		}
		if e == one {
			must(t, router.Unbind(e))
		} else {
			must(t, router.Close())
		}
		if sockettest.Exists(dir) {
			t.Errorf("%s stays", dir)
		}
	}
}

// TestLibzmq_rebind_ipc: a path can be bound again after Unbind, and the
// connecting side comes back.
func TestLibzmq_rebind_ipc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	e := "ipc://" + sockettest.SocketPath(t)
	seen := newEvents()
	dealer := open(t, sockets.NewDealer, quick(sockets.Options{Monitor: seen.Tell}))
	must(t, dealer.Connect(e))
	router := open(t, sockets.NewRouter, sockets.Options{})
	for range 3 {
		must(t, router.Bind(ctx, e))
		echo(t, ctx, dealer, router)
		must(t, router.Unbind(e))
		seen.Await(t, sockets.EventDisconnected) // messages sent before that may be lost
	}
	again := open(t, sockets.NewRouter, sockets.Options{})
	must(t, again.Bind(ctx, e))
	echo(t, ctx, dealer, again)
}

// TestLibzmq_pair_ipc_path: paths up to the system's limit work, and longer
// ones are refused by both sides.
func TestLibzmq_pair_ipc_path(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	longest := sockettest.SocketPath(t)
	longest += strings.Repeat("x", ipcpath.Max-len(longest))
	router := open(t, sockets.NewRouter, sockets.Options{})
	dealer := open(t, sockets.NewDealer, sockets.Options{})
	must(t, router.Bind(ctx, "ipc://"+longest))
	must(t, dealer.Connect("ipc://"+longest))
	echo(t, ctx, dealer, router)
	for what, err := range map[string]error{
		"Bind":    router.Bind(ctx, "ipc://"+longest+"x"),
		"Connect": dealer.Connect("ipc://" + longest + "x"),
	} {
		var typed *sockets.EndpointError
		if !errors.Is(err, syscall.ENAMETOOLONG) || !errors.As(err, &typed) {
			t.Errorf("%s of a long path: %v", what, err)
		}
	}
}

// TestLibzmq_abstract_ipc: the empty name is refused, others leave no file.
func TestLibzmq_abstract_ipc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	name := sockettest.AbstractName(t)
	router := open(t, sockets.NewRouter, sockets.Options{})
	if err := router.Bind(ctx, "ipc://@"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the empty name: %v", err)
	}
	if err := router.Connect("ipc://@"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the empty name: %v", err)
	}
	must(t, router.Bind(ctx, "ipc://"+name))
	if sockettest.Exists(name) {
		t.Error("an abstract name is a file")
	}
	longest := name + strings.Repeat("x", ipcpath.Max-len(name))
	must(t, router.Bind(ctx, "ipc://"+longest))
	for _, n := range []string{name, longest} {
		dealer := open(t, sockets.NewDealer, sockets.Options{})
		must(t, dealer.Connect("ipc://"+n))
		echo(t, ctx, dealer, router)
	}
	// The name has exactly its bytes, with none behind.
	nc, err := net.Dial("unix", name)
	must(t, err)
	sockettest.NewPeer(t, nc).Greet("DEALER", nil)
}

// TestLibzmq_bind_src_address: a connection comes from the address and port
// that it was given.
func TestLibzmq_bind_src_address(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := bind(t, sockets.NewRouter, sockets.Options{Monitor: seen.Tell})
	target := strings.TrimPrefix(router.LastEndpoint(), "tcp://")
	port := sourcePort(t)
	for source, want := range map[string]string{
		"127.0.0.1:0": "127.0.0.1", "*:*": "127.0.0.1", "localhost:*": "127.0.0.1",
		"127.0.0.1:" + port: "127.0.0.1:" + port,
	} {
		dealer := open(t, sockets.NewDealer, quick(sockets.Options{}))
		e := "tcp://" + source + ";" + target
		must(t, dealer.Connect(e))
		echo(t, ctx, dealer, router)
		if got := seen.Await(t, sockets.EventAccepted).Remote; !strings.HasPrefix(got, want) {
			t.Errorf("%s comes from %s", e, got)
		}
		must(t, dealer.Disconnect(e))
		must(t, dealer.Close())
	}
	if ifc, err := net.InterfaceByName("lo"); err == nil && ifc != nil {
		dealer := open(t, sockets.NewDealer, sockets.Options{})
		must(t, dealer.Connect("tcp://lo:*;"+target))
		echo(t, ctx, dealer, router)
	}
	told := newEvents()
	dealer := open(t, sockets.NewDealer, quick(sockets.Options{Monitor: told.Tell}))
	must(t, dealer.Connect("tcp://192.0.2.1:0;"+target)) // not an address of ours
	if e := told.Await(t, sockets.EventConnectFailed); !errors.Is(e.Err, syscall.EADDRNOTAVAIL) {
		t.Errorf("%+v", e)
	}
}

// TestLibzmq_reconnect_options: each stop condition ends the attempts, and the
// endpoint can be connected anew.
func TestLibzmq_reconnect_options(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	gone := func(dealer *sockets.Dealer) {
		t.Helper()
		eventually(t, "the endpoint is given up", func() bool { return len(dealer.Peers()) == 0 })
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		seen := newEvents()
		dealer := open(t, sockets.NewDealer, quick(sockets.Options{ReconnectStop: sockets.ReconnectStopOnRefused, Monitor: seen.Tell}))
		for _, e := range []string{freePort(t), "ipc://" + sockettest.SocketPath(t)} {
			must(t, dealer.Connect(e))
			seen.Await(t, sockets.EventConnectFailed)
			gone(dealer)
			if n := seen.Count(sockets.EventConnectRetried); n != 0 {
				t.Errorf("%d more attempts", n)
			}
			router := open(t, sockets.NewRouter, sockets.Options{})
			must(t, router.Bind(ctx, e))
			must(t, dealer.Connect(e))
			echo(t, ctx, dealer, router)
			must(t, dealer.Disconnect(e))
			gone(dealer)
		}
	})
	t.Run("handshake failed", func(t *testing.T) {
		t.Parallel()
		for _, stop := range []bool{true, false} {
			endpoint, accept := listenRaw(t)
			seen := newEvents()
			o := quick(sockets.Options{Monitor: seen.Tell})
			if stop {
				o.ReconnectStop = sockets.ReconnectStopOnHandshakeFailed
			}
			dealer := open(t, sockets.NewDealer, o)
			must(t, dealer.Connect(endpoint))
			accept().Conn.Close()
			seen.Await(t, sockets.EventHandshakeFailed)
			if stop {
				gone(dealer)
				must(t, dealer.Connect(endpoint))
			}
			r := accept()
			r.Greet("ROUTER", nil).Sync()
			r.Conn.Close() // an end after the handshake is another matter
			accept().Greet("ROUTER", nil).Sync()
		}
	})
	t.Run("after disconnect", func(t *testing.T) {
		t.Parallel()
		seen := newEvents()
		dealer := open(t, sockets.NewDealer, quick(sockets.Options{ReconnectStop: sockets.ReconnectStopAfterDisconnect, Linger: hang, Monitor: seen.Tell}))
		e := freePort(t)
		must(t, dealer.Connect(e))
		must(t, dealer.Send(ctx, []byte("for nobody")))
		seen.Await(t, sockets.EventConnectRetried)
		must(t, dealer.Disconnect(e))
		gone(dealer)
		// Messages that can be written are.
		router := bind(t, sockets.NewRouter, sockets.Options{})
		must(t, dealer.Connect(router.LastEndpoint()))
		echo(t, ctx, dealer, router)
		must(t, dealer.Send(ctx, []byte("last")))
		must(t, dealer.Disconnect(router.LastEndpoint()))
		m, err := router.Recv(ctx)
		must(t, err)
		if string(m[1]) != "last" {
			t.Errorf("%q", m)
		}
		gone(dealer)
	})
}

// TestLibzmq_term_endpoint: unbind and disconnect by the name that LastEndpoint
// tells, and not by a wildcard, on every transport.
func TestLibzmq_term_endpoint(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, e := range []string{freePort(t), "ipc://*", "inproc://a"} {
		o := inprocOptions()
		pull, push := open(t, sockets.NewPull, o), open(t, sockets.NewPush, o)
		must(t, pull.Bind(ctx, e))
		last := pull.LastEndpoint()
		must(t, push.Connect(last))
		must(t, push.Send(ctx, []byte("x")))
		_, err := pull.Recv(ctx)
		must(t, err)
		if strings.Contains(e, "*") {
			if err := pull.Unbind(e); !errors.Is(err, sockets.ErrNotBound) {
				t.Errorf("Unbind(%s): %v", e, err)
			}
		}
		must(t, push.Disconnect(last))
		if err := push.TrySend([]byte("y")); !errors.Is(err, sockets.ErrWouldBlock) {
			t.Errorf("Send after Disconnect(%s): %v", last, err)
		}
		must(t, pull.Unbind(last))
		if strings.HasPrefix(last, "ipc://") {
			continue // its directory is gone with it
		}
		again := open(t, sockets.NewPull, o)
		must(t, again.Bind(ctx, last))
	}
}

// TestLibzmq_connect_resolve: which addresses can be connected to.
func TestLibzmq_connect_resolve(t *testing.T) {
	t.Parallel()
	s := open(t, sockets.NewPub, quick(sockets.Options{}))
	for _, good := range []string{
		"tcp://localhost:1234", "tcp://127.0.0.1:1234", "tcp://[::1]:1234", "tcp://foobar123.invalid:1234",
		"tcp://lo:9999;localhost:1234", "tcp://*:0;127.0.0.1:1234", "tcp://localhost:*;127.0.0.1:1234",
	} {
		if err := s.Connect(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"tcp://localhost:invalid", "tcp://in val id:1234", "tcp://in&val&id:1234", "tcp://localhost:*",
		"tcp://*:1234", "tcp://127.0.0.1:1234/path", "tcp://eth0:99999;localhost:1234", "tcp://;localhost:1234",
		"tcp://localhost:1234;", "tcp://a:1;b:2;c:3", "invalid://localhost:1234", "localhost:1234",
	} {
		var typed *sockets.EndpointError
		if err := s.Connect(bad); !errors.As(err, &typed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
