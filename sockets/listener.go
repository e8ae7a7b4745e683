package sockets

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// listener accepts connections on one endpoint. Accepting never waits for a
// peer: each connection does its handshake in a goroutine of its own, and when
// there are too many of those, the oldest has to go.
type listener struct {
	socket   *socket
	net      net.Listener
	endpoint string

	mu       sync.Mutex
	closed   bool
	conns    map[*conn]struct{} // all accepted connections
	halfOpen list.List          // of *conn: those in their handshake, oldest first
}

// Bind listens on an endpoint: tcp://host:port, where host is an address, a
// name, a network interface's name, or * for all interfaces, and port a number,
// or * or 0 for one of the system's choice, which LastEndpoint then tells. The
// context bounds the resolution of a name. A port in use is reported at once,
// as the network's error (a *net.OpError, syscall.EADDRINUSE).
func (s *socket) Bind(ctx context.Context, address string) error {
	if err := ctx.Err(); err != nil {
		return err // looking up a name that needs no network does not notice
	}
	e, err := parseEndpoint(address, true)
	if err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	if host, ok := interfaceAddress(e.host); ok {
		e.host = host
	}
	network := "tcp"
	if ip, err := netip.ParseAddr(e.host); err == nil && ip.Is4() {
		network = "tcp4" // else 0.0.0.0 would mean IPv6 as well
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // plain TCP, whatever the system prefers
	nl, err := lc.Listen(ctx, network, e.address())
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(nl.Addr().String())
	if e.host == "" {
		host = "0.0.0.0"
	}
	l := &listener{socket: s, net: nl, conns: map[*conn]struct{}{}}
	l.endpoint = "tcp://" + net.JoinHostPort(host, port)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		nl.Close()
		return ErrClosed
	}
	s.listeners[l.endpoint] = l
	s.last = l.endpoint
	s.wg.Go(l.run)
	return nil
}

// interfaceAddress returns the first address, IPv4 if there is one, of the
// network interface with the given name.
func interfaceAddress(name string) (string, bool) {
	if _, err := netip.ParseAddr(name); err == nil || name == "" {
		return "", false
	}
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return "", false
	}
	addrs, _ := ifc.Addrs()
	other := ""
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil:
		case p.Addr().Is4():
			return p.Addr().String(), true
		case other == "" && p.Addr().IsLinkLocalUnicast():
			other = p.Addr().WithZone(name).String()
		case other == "":
			other = p.Addr().String()
		}
	}
	return other, other != ""
}

// Unbind stops listening on an endpoint, as LastEndpoint told it, and closes
// the connections accepted there, without regard to Options.Linger.
func (s *socket) Unbind(address string) error {
	s.mu.Lock()
	l := s.listeners[address]
	delete(s.listeners, address)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if l == nil {
		return ErrNotBound
	}
	l.close()
	l.disconnect()
	return nil
}

// close stops accepting, and closes what is still in its handshake.
func (l *listener) close() {
	l.net.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for l.halfOpen.Len() > 0 {
		l.dismiss(l.halfOpen.Front().Value.(*conn)).close(ErrClosed)
	}
}

// disconnect closes all connections; after close there will be no others.
func (l *listener) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.close(ErrClosed)
	}
}

// Bounds of the pause after a failed accept, typically for lack of file
// descriptors.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

func (l *listener) run() {
	s := l.socket
	s.report(Event{Kind: Listening, Endpoint: l.endpoint})
	pause := acceptPauseMin
	for {
		nc, err := l.net.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				s.report(Event{Kind: ListenerClosed, Endpoint: l.endpoint})
				return
			}
			s.report(Event{Kind: AcceptFailed, Endpoint: l.endpoint, Err: err})
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-s.closing:
				timer.Stop()
			}
			pause = min(2*pause, acceptPauseMax)
			continue
		}
		pause = acceptPauseMin
		l.serve(nc)
	}
}

// serve starts the goroutine of an accepted connection.
func (l *listener) serve(nc net.Conn) {
	s := l.socket
	s.tune(nc)
	c, err := newConn(nc)
	if err != nil {
		s.report(Event{Kind: AcceptFailed, Endpoint: l.endpoint, Err: err})
		return
	}
	s.report(Event{Kind: Accepted, Endpoint: l.endpoint, Remote: nc.RemoteAddr().String()})
	if !l.enter(c) {
		c.finish()
		return
	}
	s.wg.Go(func() {
		_ = s.serve(c, nil, l.endpoint, func() { l.established(c) }) // it reported the error
		l.leave(c)
	})
}

// enter lists a new connection, at the cost of the oldest half-open one if
// there are too many. It fails once the listener is closed.
func (l *listener) enter(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.conns[c] = struct{}{}
	c.waiting = l.halfOpen.PushBack(c)
	if l.halfOpen.Len() > l.socket.opts.MaxHandshakes {
		l.dismiss(l.halfOpen.Front().Value.(*conn)).close(ErrHandshakeTimeout)
	}
	return true
}

// dismiss takes c off the half-open connections, if it is there. mu must be
// held.
func (l *listener) dismiss(c *conn) *conn {
	if c.waiting != nil {
		l.halfOpen.Remove(c.waiting)
		c.waiting = nil
	}
	return c
}

// established says that the handshake of c has succeeded.
func (l *listener) established(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dismiss(c)
}

// leave forgets a connection that has ended.
func (l *listener) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dismiss(c)
	delete(l.conns, c)
}

// tune sets what the options ask of a network connection.
func (s *socket) tune(nc net.Conn) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	// Both fail only on a connection that is already gone, which the first
	// read will tell.
	if s.opts.SendBuffer > 0 {
		_ = tc.SetWriteBuffer(s.opts.SendBuffer)
	}
	if s.opts.RecvBuffer > 0 {
		_ = tc.SetReadBuffer(s.opts.RecvBuffer)
	}
}
