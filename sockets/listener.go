package sockets

import (
	"context"
	"errors"
	"net"
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
	halfOpen []*conn            // those in their handshake, oldest first
}

// Bind listens on an endpoint: tcp://host:port, where host is an address, a
// name, or * for all interfaces, and port a number, or * or 0 for one of the
// system's choice, which LastEndpoint then tells. The context bounds the
// resolution of a name. A port in use is reported at once, as the network's
// error.
func (s *socket) Bind(ctx context.Context, address string) error {
	e, err := parseEndpoint(address, true)
	if err != nil {
		return err
	}
	nl, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.address())
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

// Unbind stops listening on an endpoint, as LastEndpoint told it, and closes
// the connections accepted there.
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
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.close(ErrClosed)
	}
	return nil
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	halfOpen := l.halfOpen
	l.halfOpen = nil
	l.mu.Unlock()
	l.net.Close()
	for _, c := range halfOpen {
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
			select {
			case <-time.After(pause):
			case <-s.closing:
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

	var oldest *conn
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		c.close(ErrClosed)
		return
	}
	l.conns[c] = struct{}{}
	l.halfOpen = append(l.halfOpen, c)
	if len(l.halfOpen) > s.opts.MaxHandshakes {
		oldest = l.halfOpen[0]
		l.halfOpen = l.halfOpen[1:]
	}
	l.mu.Unlock()
	if oldest != nil {
		oldest.close(ErrHandshakeTimeout)
	}

	s.wg.Go(func() {
		_ = s.serve(c, nil, l.endpoint, func() { l.established(c) })
		l.established(c) // also if it was not
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
	})
}

// established takes c off the half-open connections.
func (l *listener) established(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.halfOpen {
		if other == c {
			l.halfOpen = append(l.halfOpen[:i], l.halfOpen[i+1:]...)
			return
		}
	}
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
