package libzmq

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/sockettest"
	"clustermap/sockets"
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
			inherit := func() (string, sockets.Options) {
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
				return scheme + address, sockets.Options{Listen: func(context.Context, string, string) (net.Listener, error) { return l, nil }}
			}

			bounce := func(bound, connected interface {
				Send(context.Context, ...[]byte) error
				Recv(context.Context) (sockets.Message, error)
			}) {
				t.Helper()
				for range 3 {
					must(t, connected.Send(ctx, []byte("there"), []byte("and more")))
					wantRecv(t, func() (sockets.Message, error) { return bound.Recv(ctx) }, "there", "and more")
					must(t, bound.Send(ctx, []byte("back"), []byte("and more")))
					wantRecv(t, func() (sockets.Message, error) { return connected.Recv(ctx) }, "back", "and more")
				}
			}
			remains := func(endpoint string) {
				t.Helper()
				if path, ok := strings.CutPrefix(endpoint, "ipc://"); ok {
					must(t, os.Remove(path))
				}
			}

			endpoint, o := inherit()
			rep := open(t, sockets.NewRep, o)
			must(t, rep.Bind(ctx, endpoint))
			req := open(t, sockets.NewReq, sockets.Options{})
			must(t, req.Connect(endpoint))
			bounce(rep, req)
			must(t, req.Close())
			must(t, rep.Close())
			remains(endpoint)

			endpoint, o = inherit()
			bound := open(t, sockets.NewPair, o)
			must(t, bound.Bind(ctx, endpoint))
			other := open(t, sockets.NewPair, sockets.Options{})
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
	rep := bind(t, sockets.NewRep, sockets.Options{Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		return accepting{l, accepted}, err
	}})
	local := make(chan string, 1)
	req := open(t, sockets.NewReq, sockets.Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
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
func filter(admits func(net.Conn) bool) sockets.Options {
	return sockets.Options{Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		return filtered{l, admits}, err
	}}
}

// checkFilter connects a PAIR to another one, which lets it in or not: messages bounce,
// or none arrives on either side.
func checkFilter(t *testing.T, bound *sockets.Pair, endpoint string, client sockets.Options, works bool) {
	t.Helper()
	must(t, bound.Bind(testContext(t), endpoint))
	seen := newEvents()
	client.Monitor, client.Linger = seen.Tell, sockets.LingerNone
	connected := open(t, sockets.NewPair, client)
	must(t, connected.Connect(bound.LastEndpoint()))
	if works {
		bounced(t, bound, connected)
		return
	}
	tries := func(s *sockets.Pair) error { return s.TrySend([]byte("12345678"), []byte("abcdefgh")) }
	if err := tries(connected); err != nil && !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("the client's TrySend: %v", err)
	}
	seen.Await(t, sockets.EventHandshakeFailed)
	wantQueued(t, bound)
	if err := tries(bound); !errors.Is(err, sockets.ErrWouldBlock) {
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
		var o sockets.Options
		if c.prefix != "" {
			admits, err := from(c.prefix)
			must(t, err)
			o = filter(admits)
		}
		bound := open(t, sockets.NewPair, o)
		if c.cleared {
			must(t, bound.SetOptions(func(o *sockets.Options) { o.Listen = nil }))
		}
		checkFilter(t, bound, freePort(t), sockets.Options{}, c.works)
	}
}

// TestLibzmq_socks: messages go by way of the proxy, to an address or a name, with or
// without a password, and also if the proxy begins to listen only later. The connection to
// the proxy comes from the source address of the endpoint, where there is one.
func TestLibzmq_socks(t *testing.T) {
	t.Parallel()
	push := bind(t, sockets.NewPush, sockets.Options{})
	target := strings.TrimPrefix(push.LastEndpoint(), "tcp://")
	host, port, err := net.SplitHostPort(target)
	must(t, err)
	source := sourcePort(t)
	const user, password = "someuser", "somepass"
	for name, c := range map[string]struct {
		endpoint string
		proxy    *sockettest.SOCKSProxy
		o        sockets.Options
		late     bool   // the proxy listens when an attempt has failed
		asked    string // what the proxy is asked for
		from     string // where its client comes from
	}{
		"no proxy":       {endpoint: target},
		"address":        {endpoint: target, proxy: &sockettest.SOCKSProxy{}, asked: "1 " + host},
		"late":           {endpoint: target, proxy: &sockettest.SOCKSProxy{}, late: true, asked: "1 " + host},
		"name":           {endpoint: "service.invalid:" + port, proxy: &sockettest.SOCKSProxy{}, asked: "3 service.invalid"},
		"IPv6":           {endpoint: "::1:" + port, proxy: &sockettest.SOCKSProxy{OnlyIPv4: true}, asked: "4 ::1"},
		"IPv6, brackets": {endpoint: "[::1]:" + port, proxy: &sockettest.SOCKSProxy{OnlyIPv4: true}, asked: "4 ::1"},
		"any source":     {endpoint: "*:*;" + target, proxy: &sockettest.SOCKSProxy{}, asked: "1 " + host, from: "127.0.0.1:"},
		"any port":       {endpoint: "127.0.0.1:0;" + target, proxy: &sockettest.SOCKSProxy{}, asked: "1 " + host, from: "127.0.0.1:"},
		"source":         {endpoint: "127.0.0.1:" + source + ";" + target, proxy: &sockettest.SOCKSProxy{}, asked: "1 " + host, from: "127.0.0.1:" + source},
		"password":       {endpoint: target, proxy: &sockettest.SOCKSProxy{User: user, Password: password}, o: sockets.Options{SOCKSUser: user, SOCKSPassword: password}, asked: "1 " + host},
		"password, late": {endpoint: target, proxy: &sockettest.SOCKSProxy{User: user, Password: password}, o: sockets.Options{SOCKSUser: user, SOCKSPassword: password}, late: true, asked: "1 " + host},
		"no password":    {endpoint: target, proxy: &sockettest.SOCKSProxy{User: user}, o: sockets.Options{SOCKSUser: user}, asked: "1 " + host},
	} {
		// One after another: the PUSH divides its messages among its peers.
		seen := newEvents()
		c.o.Monitor = seen.Tell
		if c.late {
			c.proxy.Address = strings.TrimPrefix(freePort(t), "tcp://")
			c.o.SOCKSProxy = c.proxy.Address
		} else if c.proxy != nil {
			c.o.SOCKSProxy = c.proxy.Start(t).Address
		}
		pull := open(t, sockets.NewPull, quick(c.o))
		if got := pull.Options(); got.SOCKSProxy != c.o.SOCKSProxy || got.SOCKSUser != c.o.SOCKSUser || got.SOCKSPassword != c.o.SOCKSPassword {
			t.Errorf("%s: the options are %q %q %q", name, got.SOCKSProxy, got.SOCKSUser, got.SOCKSPassword)
		}
		must(t, pull.Connect("tcp://"+c.endpoint))
		if c.late {
			if e := seen.Await(t, sockets.EventConnectFailed); !errors.Is(e.Err, syscall.ECONNREFUSED) {
				t.Errorf("%s: %+v", name, e)
			}
			c.proxy.Start(t)
		}
		ctx := testContext(t)
		for _, text := range []string{"ABC", "DEF"} {
			must(t, push.Send(ctx, []byte(text)))
			wantRecv(t, func() (sockets.Message, error) { return pull.Recv(ctx) }, text)
		}
		must(t, pull.Close())
		eventually(t, "the PULL has gone", func() bool { return len(push.Peers()) == 0 })
		if c.proxy == nil {
			continue
		}
		if got := c.proxy.Requests(); got[len(got)-1] != c.asked {
			t.Errorf("%s: the proxy was asked for %q", name, got)
		}
		for _, from := range c.proxy.Clients() {
			if !strings.HasPrefix(from, c.from) {
				t.Errorf("%s: the proxy's client comes from %s", name, from)
			}
		}
	}
	longest := strings.Repeat("x", 255)
	for field, o := range map[string]sockets.Options{
		"":              {SOCKSProxy: "somehost:1080", SOCKSUser: longest, SOCKSPassword: longest},
		"SOCKSUser":     {SOCKSProxy: "somehost:1080", SOCKSUser: longest + "x"},
		"SOCKSPassword": {SOCKSProxy: "somehost:1080", SOCKSUser: "u", SOCKSPassword: longest + "x"},
	} {
		s, err := sockets.NewSub(o)
		var fault *sockets.OptionError
		switch {
		case field == "" && err == nil:
			if got := s.Options(); got.SOCKSUser != longest || got.SOCKSPassword != longest {
				t.Errorf("%d and %d bytes are left", len(got.SOCKSUser), len(got.SOCKSPassword))
			}
			must(t, s.Close())
		case field == "" || !errors.As(err, &fault) || fault.Field != field:
			t.Errorf("%s: %v", field, err)
		}
	}
}
