package sockets

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// addressInUse says that a bind failed because the address is taken. The number
// is Windows' WSAEADDRINUSE.
func addressInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.Errno(10048))
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
	wants(t, sub, "a")
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
