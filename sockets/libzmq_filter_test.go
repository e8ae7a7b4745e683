package sockets

import (
	"context"
	"net"
	"strings"
	"testing"
)

// filtered accepts the connections that a program lets in, and closes others.
type filtered struct {
	net.Listener
	admits func(net.Conn) bool
}

func (l filtered) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.admits(c) {
			return c, err
		}
		c.Close()
	}
}

// filter returns the option for such a listener.
func filter(admits func(net.Conn) bool) Options {
	return Options{Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		return filtered{l, admits}, err
	}}
}

// checkFilter exchanges a message with a server that lets the peer in. One that does not
// closes its connections without a word.
func checkFilter(t *testing.T, endpoint func() string, admits func(net.Conn) bool) {
	t.Helper()
	ctx := testContext(t)
	pull := open(t, NewPull, filter(admits))
	must(t, pull.Bind(ctx, endpoint()))
	push := open(t, NewPush, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	must(t, push.Send(ctx, []byte("let in")))
	wantRecv(t, func() (Message, error) { return pull.Recv(ctx) }, "let in")

	refusing := open(t, NewPull, filter(func(c net.Conn) bool { return !admits(c) }))
	must(t, refusing.Bind(ctx, endpoint()))
	network, address, _ := strings.Cut(refusing.LastEndpoint(), "://")
	if network == "ipc" {
		network = "unix"
	}
	conn, err := net.Dial(network, address)
	must(t, err)
	newRaw(t, conn).ended()
	if n := len(refusing.Peers()); n != 0 {
		t.Errorf("%d peers", n)
	}
}

// TestLibzmq_tcp_accept_filter: only peers with certain addresses are let in.
func TestLibzmq_tcp_accept_filter(t *testing.T) {
	t.Parallel()
	_, allowed, err := net.ParseCIDR("127.0.0.0/8")
	must(t, err)
	checkFilter(t, func() string { return anyPort }, func(c net.Conn) bool { return allowed.Contains(c.RemoteAddr().(*net.TCPAddr).IP) })
}
