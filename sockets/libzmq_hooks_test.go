package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLibzmq_use_fd: a socket is given a listener that was made before, over tcp and
// ipc, and exchanges messages of two frames with peers that connect to its address. The
// file of the listener stays the application's.
func TestLibzmq_use_fd(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("listeners cannot be made from files on Windows")
	}
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			// inherit returns an endpoint and the option to use a listener for it.
			inherit := func() (string, Options) {
				address, scheme := "127.0.0.1:0", "tcp://"
				if network == "unix" {
					address, scheme = filepath.Join(t.TempDir(), "s"), "ipc://"
				}
				l, err := net.Listen(network, address)
				if errors.Is(err, syscall.EAFNOSUPPORT) {
					t.Skip("no Unix domain sockets here")
				}
				must(t, err)
				address = l.Addr().String()
				if u, ok := l.(*net.UnixListener); ok {
					u.SetUnlinkOnClose(false)
				}
				return scheme + address, Options{Listen: func(context.Context, string, string) (net.Listener, error) { return l, nil }}
			}

			bounce := func(bound, connected interface {
				Send(context.Context, ...[]byte) error
				Recv(context.Context) (Message, error)
			}) {
				t.Helper()
				for range 3 {
					must(t, connected.Send(ctx, []byte("there"), []byte("and more")))
					wantRecv(t, func() (Message, error) { return bound.Recv(ctx) }, "there", "and more")
					must(t, bound.Send(ctx, []byte("back"), []byte("and more")))
					wantRecv(t, func() (Message, error) { return connected.Recv(ctx) }, "back", "and more")
				}
			}
			remains := func(endpoint string) {
				t.Helper()
				if path, ok := strings.CutPrefix(endpoint, "ipc://"); ok {
					must(t, os.Remove(path))
				}
			}

			endpoint, o := inherit()
			rep := open(t, NewRep, o)
			must(t, rep.Bind(ctx, endpoint))
			req := open(t, NewReq, Options{})
			must(t, req.Connect(endpoint))
			bounce(rep, req)
			must(t, req.Close())
			must(t, rep.Close())
			remains(endpoint)

			endpoint, o = inherit()
			bound := open(t, NewPair, o)
			must(t, bound.Bind(ctx, endpoint))
			other := open(t, NewPair, Options{})
			must(t, other.Connect(endpoint))
			bounce(bound, other)
			must(t, other.Close())
			must(t, bound.Close())
			remains(endpoint)
		})
	}
}

// accepting is a listener that passes on the connections that it accepts.
type accepting struct {
	net.Listener
	conns chan net.Conn
}

func (a accepting) Accept() (net.Conn, error) {
	nc, err := a.Listener.Accept()
	if err == nil {
		a.conns <- nc
	}
	return nc, err
}

// TestLibzmq_srcfd: the receiver of a message learns the address that it came from,
// and still knows it when the connection has ended. A closed socket leaves no descriptor
// open.
func TestLibzmq_srcfd(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	accepted := make(chan net.Conn, 1)
	rep := bind(t, NewRep, Options{Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		return accepting{l, accepted}, err
	}})
	local := make(chan string, 1)
	req := open(t, NewReq, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			local <- nc.LocalAddr().String()
		}
		return nc, err
	}})
	must(t, req.Connect(rep.LastEndpoint()))
	must(t, req.Send(ctx, make([]byte, 20)))
	m, peer, err := rep.RecvFrom(ctx)
	must(t, err)
	if len(m) != 1 || len(m[0]) != 20 {
		t.Errorf("%q", m)
	}
	if host, _, err := net.SplitHostPort(peer.RemoteAddr()); err != nil || host != "127.0.0.1" {
		t.Errorf("the message is from the host %q, %v", host, err)
	}
	want := <-local
	if peer.RemoteAddr() != want {
		t.Errorf("the message is from %s, want %s", peer.RemoteAddr(), want)
	}
	must(t, req.Close())
	eventually(t, "the connection ends", func() bool { return len(rep.Peers()) == 0 })
	if peer.RemoteAddr() != want {
		t.Errorf("afterwards it is from %s", peer.RemoteAddr())
	}
	must(t, rep.Close())
	if err := (<-accepted).SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the descriptor of the connection is still open: %v", err)
	}
}
