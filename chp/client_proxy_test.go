package chp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/internal/loopback"
)

// proxy stands in front of one of a server's ports.
type proxy struct {
	t        testing.TB
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string              // where connections go
	serve  func(net.Conn) bool // serves new connections instead; nil or false: they are carried
	links  map[*link]struct{}
	closed bool
}

// link is one connection through a proxy.
type link struct {
	client, server *net.TCPConn
	mu             sync.Mutex
	held           chan struct{} // while not nil, nothing is carried; closed to go on
	kept           int           // bytes from the client that were read while held
}

// newProxies puts a proxy in front of each of a server's ports, and returns
// them with the address that clients are to connect to.
func newProxies(t testing.TB, e Endpoints) (ps [3]*proxy, address string) {
	t.Helper()
	targets := [3]string{e.Snapshot, e.Publisher, e.Collector}
	for host := loopback.Own(); ; {
		first, err := net.Listen("tcp", host+":0")
		must(t, err)
		port := first.Addr().(*net.TCPAddr).Port
		second, err2 := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port+1))
		third, err3 := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port+2))
		if err2 != nil || err3 != nil {
			for _, l := range []net.Listener{first, second, third} {
				if l != nil {
					l.Close()
				}
			}
			continue
		}
		for i, l := range []net.Listener{first, second, third} {
			ps[i] = startProxy(t, l, targets[i])
		}
		return ps, fmt.Sprintf("tcp://%s:%d", host, port)
	}
}

// newProxy puts a proxy in front of one endpoint.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", loopback.Own()+":0")
	must(t, err)
	return startProxy(t, l, target)
}

func startProxy(t testing.TB, l net.Listener, target string) *proxy {
	p := &proxy{t: t, listener: l, target: strings.TrimPrefix(target, "tcp://"), links: map[*link]struct{}{}}
	p.wg.Go(p.run)
	t.Cleanup(p.close)
	return p
}

// endpoint returns where clients connect to.
func (p *proxy) endpoint() string { return "tcp://" + p.listener.Addr().String() }

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.each((*link).reset)
	p.wg.Wait()
}

func (p *proxy) run() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.carry(c.(*net.TCPConn)) })
	}
}

func (p *proxy) carry(c *net.TCPConn) {
	p.mu.Lock()
	serve, target := p.serve, p.target
	p.mu.Unlock()
	if serve != nil && serve(c) {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		c.SetLinger(0)
		c.Close()
		return
	}
	l := &link{client: c, server: server.(*net.TCPConn)}
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.closed {
		l.reset()
	}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.copy(l.client, l.server) })
	both.Go(func() { l.copy(l.server, l.client) })
	both.Wait()
	c.Close()
	server.Close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// copy carries bytes from one side to the other.
func (l *link) copy(to, from *net.TCPConn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) { // from release
			from.SetReadDeadline(time.Time{})
			err = nil
		}
		l.mu.Lock()
		held := l.held
		l.mu.Unlock()
		if held != nil {
			if from == l.client {
				n, err = l.keep(buffer, n, err)
			}
			<-held
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			if err == io.EOF || errors.Is(err, net.ErrClosed) {
				to.CloseWrite()
			} else {
				l.reset()
			}
			return
		}
	}
}

// keep reads from the client until the buffer, which has n bytes, is full, or until
// release.
func (l *link) keep(buffer []byte, n int, err error) (int, error) {
	for more := n; ; n += more {
		l.mu.Lock()
		l.kept += more
		l.mu.Unlock()
		if err != nil || n == len(buffer) {
			return n, err
		}
		more, err = l.client.Read(buffer[n:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.client.SetReadDeadline(time.Time{})
			return n + more, nil
		}
	}
}

// each calls do for every present connection.
func (p *proxy) each(do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
}

// instead lets new connections be served by f, or be carried if f is nil.
func (p *proxy) instead(f func(net.Conn) bool) {
	p.mu.Lock()
	p.serve = f
	p.mu.Unlock()
}

// redirect leads new connections to another address.
func (p *proxy) redirect(target string) (before string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.target = p.target, strings.TrimPrefix(target, "tcp://")
	return before
}

func (l *link) reset() {
	l.client.SetLinger(0)
	l.server.SetLinger(0)
	l.client.Close()
	l.server.Close()
	l.release()
}

// cut ends the client's side alone. Bytes read from it before still go to the server.
func (l *link) cut() {
	l.client.SetLinger(0)
	l.client.Close()
}

// holding returns how many bytes of the client are kept.
func (l *link) holding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// hold keeps the bytes that come from now on, until release.
func (l *link) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(chan struct{})
	}
}

func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held)
		l.held = nil
		l.client.SetReadDeadline(time.Now())
	}
}

// garble writes rubbish to both sides.
func (l *link) garble() {
	rubbish := []byte(strings.Repeat("\xfe\x7frubbish", 100))
	l.client.Write(rubbish)
	l.server.Write(rubbish)
}

// halfClose ends the direction to the client.
func (l *link) halfClose() { l.client.CloseWrite() }
