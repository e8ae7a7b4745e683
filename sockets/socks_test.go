package sockets

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// proxyServer is a SOCKS 5 server (RFC 1928) that knows CONNECT.
type proxyServer struct {
	t              testing.TB
	address        string // where it listens; startProxy finds one, if ""
	user, password string // wanted, if not ""
	silent         bool   // it takes connections and says nothing
	onlyIPv4       bool   // it takes ::1 for 127.0.0.1

	mu    sync.Mutex
	asked []string // the addresses that it was asked to connect to
	from  []string // where its clients came from
}

func startProxy(t testing.TB, p *proxyServer) *proxyServer {
	t.Helper()
	l, err := net.Listen("tcp", cmp.Or(p.address, "127.0.0.1:0"))
	must(t, err)
	p.t, p.address = t, l.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				stop := context.AfterFunc(t.Context(), func() { nc.Close() })
				defer stop()
				p.mu.Lock()
				p.from = append(p.from, nc.RemoteAddr().String())
				p.mu.Unlock()
				p.serve(nc)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return p
}

func (p *proxyServer) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// clients returns where the clients came from.
func (p *proxyServer) clients() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.from)
}

func (p *proxyServer) serve(nc net.Conn) {
	in := bufio.NewReader(nc)
	if p.silent {
		_, _ = io.Copy(io.Discard, in)
		return
	}
	read := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(in, b); err != nil {
			return make([]byte, n)
		}
		return b
	}
	field := func() string { return string(read(int(read(1)[0]))) }

	if read(1)[0] != 5 {
		return
	}
	methods := field()
	if p.user == "" {
		_, _ = nc.Write([]byte{5, 0})
	} else if !strings.Contains(methods, "\x02") {
		_, _ = nc.Write([]byte{5, 0xFF})
		return
	} else {
		_, _ = nc.Write([]byte{5, 2})
		if read(1)[0] != 1 || field() != p.user || field() != p.password {
			_, _ = nc.Write([]byte{1, 1})
			return
		}
		_, _ = nc.Write([]byte{1, 0})
	}
	head := read(4)
	var host string
	switch head[3] {
	case 1:
		host = netip.AddrFrom4([4]byte(read(4))).String()
	case 3:
		host = field()
	case 4:
		host = netip.AddrFrom16([16]byte(read(16))).String()
	default:
		return
	}
	port := binary.BigEndian.Uint16(read(2))
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprintf("%d %s", head[3], host))
	p.mu.Unlock()
	if host == "forbidden.invalid" {
		_, _ = nc.Write([]byte{5, 2, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	if host == "service.invalid" || host == "::1" && p.onlyIPv4 {
		host = "127.0.0.1"
	}
	far, err := net.Dial("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		_, _ = nc.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	defer far.Close()
	stop := context.AfterFunc(p.t.Context(), func() { far.Close() })
	defer stop()
	// The address has the form of the one that was asked for: with a name, the longest.
	form := map[byte][]byte{1: make([]byte, 6), 3: append([]byte{255}, make([]byte, 257)...), 4: make([]byte, 18)}[head[3]]
	_, _ = nc.Write(append([]byte{5, 0, 0, head[3]}, form...))
	go func() {
		_, _ = io.Copy(far, in)
		_ = far.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(nc, far)
}

// TestSOCKS: messages pass through the proxy, which resolves names itself.
func TestSOCKS(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	router := bind(t, NewRouter, Options{})
	_, port, _ := cutLast(router.LastEndpoint())
	for _, p := range []*proxyServer{{}, {user: "me", password: "secret"}, {user: "me"}} {
		startProxy(t, p)
		for host, want := range map[string]string{
			"127.0.0.1": "1 127.0.0.1", "service.invalid": "3 service.invalid",
		} {
			dealer := open(t, NewDealer, Options{SOCKSProxy: p.address, SOCKSUser: p.user, SOCKSPassword: p.password})
			must(t, dealer.Connect("tcp://"+host+":"+port))
			echo(t, ctx, dealer, router)
			if got := p.requests(); got[len(got)-1] != want {
				t.Errorf("the proxy was asked for %q, want %q", got, want)
			}
		}
	}
	// A proxy that needs no password does not get one.
	p := startProxy(t, &proxyServer{})
	dealer := open(t, NewDealer, Options{SOCKSProxy: p.address, SOCKSUser: "me", SOCKSPassword: "x"})
	must(t, dealer.Connect("tcp://127.0.0.1:"+port))
	echo(t, ctx, dealer, router)
}

// TestSOCKSFails: each failure is reported with its reason, and the socket tries again.
func TestSOCKSFails(t *testing.T) {
	t.Parallel()
	noProxy := strings.TrimPrefix(freePort(t), "tcp://")
	plain := startProxy(t, &proxyServer{}).address
	strict := startProxy(t, &proxyServer{user: "me", password: "secret"}).address
	silent := startProxy(t, &proxyServer{silent: true}).address
	router := bind(t, NewRouter, Options{HandshakeTimeout: hang}) // not a proxy
	for _, c := range []struct {
		o        Options
		endpoint string
		reason   string
		is       error
	}{
		{Options{SOCKSProxy: noProxy}, "tcp://127.0.0.1:1", "refused", syscall.ECONNREFUSED},
		{Options{SOCKSProxy: plain}, freePort(t), "connection refused", syscall.ECONNREFUSED},
		{Options{SOCKSProxy: plain}, "tcp://forbidden.invalid:1", "not allowed", nil},
		{Options{SOCKSProxy: plain}, "tcp://" + strings.Repeat("x", 256) + ":1", "too long", nil},
		{Options{SOCKSProxy: strict}, "tcp://127.0.0.1:1", "no authentication method", nil},
		{Options{SOCKSProxy: strict, SOCKSUser: "me", SOCKSPassword: "guess"}, "tcp://127.0.0.1:1", "password refused", nil},
		{Options{SOCKSProxy: strings.TrimPrefix(router.LastEndpoint(), "tcp://")}, "tcp://127.0.0.1:1", "not a SOCKS 5 proxy", nil},
		{Options{SOCKSProxy: silent, ConnectTimeout: 20 * time.Millisecond}, "tcp://127.0.0.1:1", "", nil},
		{Options{SOCKSProxy: silent, HandshakeTimeout: 20 * time.Millisecond}, "tcp://127.0.0.1:1", "", os.ErrDeadlineExceeded},
	} {
		seen := newEvents()
		c.o.Monitor = seen.Tell
		dealer := open(t, NewDealer, quick(c.o))
		must(t, dealer.Connect(c.endpoint))
		for range 2 {
			e := seen.Await(t, EventConnectFailed)
			if c.o.ConnectTimeout > 0 {
				var timeout net.Error
				if !errors.As(e.Err, &timeout) || !timeout.Timeout() {
					t.Errorf("%+v", e)
				}
				continue
			}
			var typed *ProxyError
			if !errors.As(e.Err, &typed) || typed.Proxy != c.o.SOCKSProxy {
				t.Errorf("%+v", e)
			}
			if c.is != nil && !errors.Is(e.Err, c.is) || !strings.Contains(e.Err.Error(), c.reason) {
				t.Errorf("%v, want %q, %v", e.Err, c.reason, c.is)
			}
		}
		within(t, "Close", func() { must(t, dealer.Close()) })
	}
	// A close does not wait for a proxy that says nothing.
	dealer := open(t, NewDealer, Options{SOCKSProxy: silent})
	must(t, dealer.Connect("tcp://127.0.0.1:1"))
	within(t, "Close", func() { must(t, dealer.Close()) })
}
