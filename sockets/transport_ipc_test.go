package sockets

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/ipcpath"
)

// socketDir is a directory with a path short enough for sockets.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func socketPath(t testing.TB) string { return filepath.Join(socketDir(t), "s") }

// abstractName returns an abstract name that no other process has, or skips the test.
func abstractName(t testing.TB) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("abstract names are Linux's")
	}
	return "@" + filepath.Base(socketDir(t))
}

// addressInUse says that a bind failed because the address is taken. The number
// is Windows' WSAEADDRINUSE.
func addressInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.Errno(10048))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// echo sends a message from dealer to router and back.
func echo(t testing.TB, ctx context.Context, dealer *Dealer, router *Router) {
	t.Helper()
	must(t, dealer.Send(ctx, []byte("there"), make([]byte, 1<<20)))
	m, err := router.Recv(ctx)
	must(t, err)
	must(t, router.Send(ctx, m[0], []byte("and back"), m[2]))
	m, err = dealer.Recv(ctx)
	must(t, err)
	if string(m[0]) != "and back" || len(m[1]) != 1<<20 {
		t.Fatalf("%q", m[0])
	}
}

// TestLibzmq_reqrep_ipc: both forms carry messages both ways, with either side first, and
// leave nothing behind.
func TestLibzmq_reqrep_ipc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, first := range []string{"bind", "connect"} {
		endpoints := []string{"ipc://" + socketPath(t)}
		if runtime.GOOS == "linux" {
			endpoints = append(endpoints, "ipc://"+abstractName(t))
		}
		for _, e := range endpoints {
			router := open(t, NewRouter, Options{})
			dealer := open(t, NewDealer, quick(Options{}))
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
			if path := strings.TrimPrefix(e, "ipc://"); path[0] != '@' && exists(path) {
				t.Errorf("%s stays", path)
			}
		}
	}
}

// TestIPCPubSub: subscriptions pass over it.
func TestIPCPubSub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pub := open(t, NewPub, Options{})
	must(t, pub.Bind(ctx, "ipc://"+socketPath(t)))
	sub := subscribed(t, Options{}, pub.LastEndpoint(), "a")
	must(t, pub.Send(ctx, []byte("b")))
	must(t, pub.Send(ctx, []byte("a")))
	m, err := sub.Recv(ctx)
	must(t, err)
	if string(m[0]) != "a" {
		t.Errorf("%q", m)
	}
}

// TestLibzmq_ipc_wildcard: a wildcard is a socket in a directory of its own,
// of which nothing is left after Unbind, or Close.
func TestLibzmq_ipc_wildcard(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := open(t, NewRouter, Options{})
	must(t, router.Bind(ctx, "ipc://*"))
	one := router.LastEndpoint()
	must(t, router.Bind(ctx, "ipc://*"))
	other := router.LastEndpoint()
	if one == other || !strings.HasPrefix(one, "ipc://"+os.TempDir()) {
		t.Errorf("bound as %s and %s", one, other)
	}
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect(one))
	echo(t, ctx, dealer, router)
	if err := router.Unbind("ipc://*"); !errors.Is(err, ErrNotBound) {
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
		if exists(dir) {
			t.Errorf("%s stays", dir)
		}
	}
}

// TestLibzmq_rebind_ipc: a path can be bound again after Unbind, and the
// connecting side comes back.
func TestLibzmq_rebind_ipc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	e := "ipc://" + socketPath(t)
	seen := newEvents()
	dealer := open(t, NewDealer, quick(Options{Monitor: seen.Tell}))
	must(t, dealer.Connect(e))
	router := open(t, NewRouter, Options{})
	for range 3 {
		must(t, router.Bind(ctx, e))
		echo(t, ctx, dealer, router)
		must(t, router.Unbind(e))
		seen.Await(t, EventDisconnected) // messages sent before that may be lost
	}
	again := open(t, NewRouter, Options{})
	must(t, again.Bind(ctx, e))
	echo(t, ctx, dealer, again)
}

// TestIPCInUse: a path with a listener is in use, as is one with a file of another kind;
// the listener does not notice.
func TestIPCInUse(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	first := open(t, NewRouter, Options{Monitor: seen.Tell})
	path := socketPath(t)
	must(t, first.Bind(ctx, "ipc://"+path))
	second := open(t, NewRouter, Options{})
	for range 3 {
		err := second.Bind(ctx, "ipc://"+path)
		var typed *net.OpError
		if !addressInUse(err) || !errors.As(err, &typed) {
			t.Fatalf("path in use: %v", err)
		}
	}
	if !exists(path) {
		t.Error("the file is gone")
	}
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect("ipc://"+path))
	echo(t, ctx, dealer, first)
	if runtime.GOOS == "linux" && !portable {
		if got := seen.Count(EventAccepted); got != 1 {
			t.Errorf("the listener saw %d connections", got)
		}
	}

	file := socketPath(t)
	must(t, os.WriteFile(file, []byte("precious"), 0o600))
	if err := second.Bind(ctx, "ipc://"+file); !addressInUse(err) {
		t.Errorf("a file at the path: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if err := second.Bind(ctx, "ipc://"+filepath.Join(socketDir(t), "none", "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such directory: %v", err)
	}
	if runtime.GOOS == "linux" {
		name := abstractName(t)
		must(t, first.Bind(ctx, "ipc://"+name))
		if err := second.Bind(ctx, "ipc://"+name); !addressInUse(err) {
			t.Errorf("abstract name in use: %v", err)
		}
	}
}

// TestIPCStale: the file of a socket that is closed is replaced, and of many sockets that
// try at once, one gets it.
func TestIPCStale(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	path := socketPath(t)
	l, err := net.Listen("unix", path)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, l.Close())

	const many = 8
	won := make(chan *Router, many)
	for range many {
		router := open(t, NewRouter, Options{})
		go func() {
			err := router.Bind(ctx, "ipc://"+path)
			switch {
			case err == nil:
				won <- router
			case addressInUse(err):
				won <- nil
			default:
				t.Error(err)
				won <- nil
			}
		}()
	}
	var winner *Router
	for range many {
		if router := <-won; router != nil {
			if winner != nil {
				t.Fatal("two have bound the path")
			}
			winner = router
		}
	}
	if winner == nil {
		t.Fatal("nobody has bound the path")
	}
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect("ipc://"+path))
	echo(t, ctx, dealer, winner)
}

// TestIPCReplaced: a file that has become another socket's is not removed.
func TestIPCReplaced(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	path := socketPath(t)
	router := open(t, NewRouter, Options{})
	must(t, router.Bind(ctx, "ipc://"+path))
	must(t, os.Remove(path)) // as libzmq does
	other := open(t, NewRouter, Options{})
	must(t, other.Bind(ctx, "ipc://"+path))
	must(t, router.Close())
	if !exists(path) {
		t.Fatal("the other's file was removed")
	}
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect("ipc://"+path))
	echo(t, ctx, dealer, other)
}

// TestLibzmq_pair_ipc_path: paths up to the system's limit work, and longer
// ones are refused by both sides.
func TestLibzmq_pair_ipc_path(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	longest := socketPath(t)
	longest += strings.Repeat("x", ipcpath.Max-len(longest))
	router := open(t, NewRouter, Options{})
	dealer := open(t, NewDealer, Options{})
	must(t, router.Bind(ctx, "ipc://"+longest))
	must(t, dealer.Connect("ipc://"+longest))
	echo(t, ctx, dealer, router)
	for what, err := range map[string]error{
		"Bind":    router.Bind(ctx, "ipc://"+longest+"x"),
		"Connect": dealer.Connect("ipc://" + longest + "x"),
	} {
		var typed *EndpointError
		if !errors.Is(err, syscall.ENAMETOOLONG) || !errors.As(err, &typed) {
			t.Errorf("%s of a long path: %v", what, err)
		}
	}
}

// TestLibzmq_abstract_ipc: the empty name is refused, others leave no file.
func TestLibzmq_abstract_ipc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	name := abstractName(t)
	router := open(t, NewRouter, Options{})
	if err := router.Bind(ctx, "ipc://@"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the empty name: %v", err)
	}
	if err := router.Connect("ipc://@"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the empty name: %v", err)
	}
	must(t, router.Bind(ctx, "ipc://"+name))
	if exists(name) {
		t.Error("an abstract name is a file")
	}
	longest := name + strings.Repeat("x", ipcpath.Max-len(name))
	must(t, router.Bind(ctx, "ipc://"+longest))
	for _, n := range []string{name, longest} {
		dealer := open(t, NewDealer, Options{})
		must(t, dealer.Connect("ipc://"+n))
		echo(t, ctx, dealer, router)
	}
	// The name has exactly its bytes, with none behind.
	nc, err := net.Dial("unix", name)
	must(t, err)
	newRaw(t, nc).Greet("DEALER", nil)
}

// TestIPCUnbindBind: a socket that binds a path as soon as another one has left it keeps its
// file.
func TestIPCUnbindBind(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	path := socketPath(t)
	first, second := open(t, NewRouter, Options{}), open(t, NewRouter, Options{})
	for range 2000 {
		must(t, first.Bind(ctx, "ipc://"+path))
		bound := make(chan error)
		go func() {
			err := second.Bind(ctx, "ipc://"+path)
			for addressInUse(err) {
				err = second.Bind(ctx, "ipc://"+path)
			}
			bound <- err
		}()
		must(t, first.Unbind("ipc://"+path))
		must(t, <-bound)
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
		must(t, second.Unbind("ipc://"+path))
	}
}
