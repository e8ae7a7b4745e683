package sockets

import (
	"context"
	"errors"
	"net"
	"net/netip"
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

// checkFilter connects a PAIR to another one, which lets it in or not: messages bounce,
// or none arrives on either side.
func checkFilter(t *testing.T, bound *Pair, endpoint string, client Options, works bool) {
	t.Helper()
	must(t, bound.Bind(testContext(t), endpoint))
	seen := newEvents()
	client.Monitor, client.Linger = seen.Tell, LingerNone
	connected := open(t, NewPair, client)
	must(t, connected.Connect(bound.LastEndpoint()))
	if works {
		bounced(t, bound, connected)
		return
	}
	tries := func(s *Pair) error { return s.TrySend([]byte("12345678"), []byte("abcdefgh")) }
	if err := tries(connected); err != nil && !errors.Is(err, ErrWouldBlock) {
		t.Errorf("the client's TrySend: %v", err)
	}
	seen.Await(t, EventHandshakeFailed)
	wantQueued(t, bound)
	if err := tries(bound); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("the server's TrySend: %v", err)
	}
	wantQueued(t, connected)
	if n := len(bound.Peers()); n != 0 {
		t.Errorf("%d peers", n)
	}
}

// from makes a filter of a text like "127.0.0.0/8", for addresses with this prefix.
func from(prefix string) (func(net.Conn) bool, error) {
	p, err := netip.ParsePrefix(prefix)
	return func(c net.Conn) bool { return p.Contains(c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()) }, err
}

// TestLibzmq_tcp_accept_filter: only peers with certain addresses are let in. A filter
// that was taken away before Bind has no effect.
func TestLibzmq_tcp_accept_filter(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"foo", "0.0.0.0foo", "0.0.0.0/foo", "0.0.0.0/", "0.0.0.0/-1", "0.0.0.0/33"} {
		if _, err := from(bad); err == nil {
			t.Errorf("the filter %q is good", bad)
		}
	}
	for _, c := range []struct {
		prefix  string
		cleared bool
		works   bool
	}{
		{"", false, true},
		{"127.0.0.255/32", true, true},
		{"127.0.0.1/32", false, true},
		{"0.0.0.0/0", false, true},
		{"127.0.0.255/32", false, false},
	} {
		var o Options
		if c.prefix != "" {
			admits, err := from(c.prefix)
			must(t, err)
			o = filter(admits)
		}
		bound := open(t, NewPair, o)
		if c.cleared {
			must(t, bound.SetOptions(func(o *Options) { o.Listen = nil }))
		}
		checkFilter(t, bound, freePort(t), Options{}, c.works)
	}
}
