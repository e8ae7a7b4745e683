package sockets

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// TestLibzmq_use_fd: a socket is given a listener that was made before, over tcp and
// ipc, and talks to peers that connect to its address.
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

			endpoint, o := inherit()
			rep := open(t, NewRep, o)
			must(t, rep.Bind(ctx, endpoint))
			req := open(t, NewReq, Options{})
			must(t, req.Connect(endpoint))
			for range 3 {
				must(t, req.Send(ctx, []byte("question")))
				wantRecv(t, func() (Message, error) { return rep.Recv(ctx) }, "question")
				must(t, rep.Send(ctx, []byte("answer")))
				wantRecv(t, func() (Message, error) { return req.Recv(ctx) }, "answer")
			}

			endpoint, o = inherit()
			bound := open(t, NewPair, o)
			must(t, bound.Bind(ctx, endpoint))
			other := open(t, NewPair, Options{})
			must(t, other.Connect(endpoint))
			must(t, other.Send(ctx, []byte("there")))
			wantRecv(t, func() (Message, error) { return bound.Recv(ctx) }, "there")
			must(t, bound.Send(ctx, []byte("back")))
			wantRecv(t, func() (Message, error) { return other.Recv(ctx) }, "back")
		})
	}
}

// TestLibzmq_srcfd: the receiver of a message learns the address that it came from,
// and still knows it when the connection has ended.
func TestLibzmq_srcfd(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{})
	local := make(chan string, 1)
	req := open(t, NewReq, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			local <- nc.LocalAddr().String()
		}
		return nc, err
	}})
	must(t, req.Connect(rep.LastEndpoint()))
	must(t, req.Send(ctx, []byte("x")))
	_, peer, err := rep.RecvFrom(ctx)
	must(t, err)
	want := <-local
	if peer.RemoteAddr() != want {
		t.Errorf("the message is from %s, want %s", peer.RemoteAddr(), want)
	}
	must(t, req.Close())
	eventually(t, "the connection ends", func() bool { return len(rep.Peers()) == 0 })
	if peer.RemoteAddr() != want {
		t.Errorf("afterwards it is from %s", peer.RemoteAddr())
	}
}
