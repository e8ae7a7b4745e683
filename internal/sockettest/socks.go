package sockettest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermap/internal/testenv"
)

// SOCKSProxy is a SOCKS 5 server (RFC 1928) that knows CONNECT.
type SOCKSProxy struct {
	t              testing.TB
	Address        string // where it listens; Start finds one, if ""
	User, Password string // wanted, if not ""
	Silent         bool   // it takes connections and says nothing
	OnlyIPv4       bool   // it takes ::1 for 127.0.0.1

	mu    sync.Mutex
	asked []string // the addresses that it was asked to connect to
	from  []string // where its clients came from
}

// Start has the proxy listen until the end of the test, and returns it.
func (p *SOCKSProxy) Start(t testing.TB) *SOCKSProxy {
	t.Helper()
	l, err := net.Listen("tcp", cmp.Or(p.Address, "127.0.0.1:0"))
	testenv.Must(t, err)
	p.t, p.Address = t, l.Addr().String()
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

// Requests returns the addresses that it was asked to connect to, each with the type of its form.
func (p *SOCKSProxy) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// Clients returns where the clients came from.
func (p *SOCKSProxy) Clients() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.from)
}

func (p *SOCKSProxy) serve(nc net.Conn) {
	in := bufio.NewReader(nc)
	if p.Silent {
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
	if p.User == "" {
		_, _ = nc.Write([]byte{5, 0})
	} else if !strings.Contains(methods, "\x02") {
		_, _ = nc.Write([]byte{5, 0xFF})
		return
	} else {
		_, _ = nc.Write([]byte{5, 2})
		if read(1)[0] != 1 || field() != p.User || field() != p.Password {
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
	if host == "service.invalid" || host == "::1" && p.OnlyIPv4 {
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
