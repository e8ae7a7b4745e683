package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"clustermap/internal/link"
)

// listener accepts connections on one endpoint. Each connection performs its
// handshake in a goroutine of its own; admission limits their number.
type listener struct {
	socket   *socket
	net      net.Listener
	endpoint string

	ending atomic.Bool // close was called

	done  chan struct{} // closed when the listener is closed
	mu    sync.Mutex
	conns map[*conn]bool // all accepted connections; true if the handshake has succeeded
}

// Bind listens for connections on an endpoint:
//
//   - tcp://host:port. The host is an IP address, a name, the name of a network
//     interface, or * for all interfaces. The port is a number, or * or 0 to
//     let the operating system choose one.
//   - ipc://path, a Unix domain socket. Bind creates the file, and Unbind and
//     Close remove it. Bind replaces a socket file that no process listens on
//     any more; if any other file exists at path, the address is in use. On
//     Linux, ipc://@name is a name in the abstract namespace. With ipc://*,
//     Bind creates a file in a new temporary directory.
//   - inproc://name, for sockets in the same process; see [Inproc]. Sockets
//     that have already called Connect with this name are connected when Bind
//     returns.
//
// LastEndpoint returns the actual endpoint if the address contains a wildcard.
// The context applies to name resolution.
//
// The error is an [*EndpointError] if the address is malformed, and otherwise
// that of package net. If the address is in use, the error matches
// syscall.EADDRINUSE. Bind fails at once and does not retry.
func (s *socket) Bind(ctx context.Context, address string) error {
	if err := ctx.Err(); err != nil {
		return err // name resolution does not check the context if it needs no network
	}
	e, err := link.Parse(address, true)
	if err != nil {
		return err
	}
	if err := s.carries(e); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	l := &listener{socket: s, conns: map[*conn]bool{}, done: make(chan struct{})}
	var name *inprocListener
	if e.Scheme == link.Inproc {
		name, err = s.opts().Inproc.listen(s, e.Name)
		l.net, l.endpoint = name, e.Text
	} else {
		var bound *link.Listener
		if bound, err = link.Listen(ctx, e, s.linkOptions()); err == nil {
			l.net, l.endpoint = bound, bound.Endpoint
		}
	}
	if err != nil {
		s.report(Event{Kind: EventBindFailed, Endpoint: address, Err: err})
		return err
	}
	if err := s.install(l); err != nil {
		_ = l.net.Close() // the first error is more useful
		return err
	}
	if name != nil {
		name.admit()
	}
	return nil
}

// install adds a listener to the socket and starts it.
func (s *socket) install(l *listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.listeners[l.endpoint] != nil { // a listener of Options.Listen may have any address
		return &net.OpError{Op: "listen", Net: "sockets", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	s.listeners[l.endpoint] = l
	s.last = l.endpoint
	s.wg.Go(l.run)
	return nil
}

// Unbind stops listening on an endpoint and closes the connections accepted on
// it, without regard to [Options.Linger]. Connections over inproc stay open.
// The address must be the actual endpoint, as LastEndpoint returned it after
// Bind. Unbind returns ErrNotBound if the socket is not bound to it.
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

// close stops accepting connections and closes those that are still in their
// handshake.
func (l *listener) close() {
	l.ending.Store(true)
	if err := l.net.Close(); err != nil {
		l.socket.report(Event{Kind: EventCloseFailed, Endpoint: l.endpoint, Err: err})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.done)
	for c, established := range l.conns {
		if !established {
			c.close(ErrClosed)
		}
	}
}

// disconnect closes all connections. It is called after close, so no further
// ones can appear.
func (l *listener) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.close(ErrClosed)
	}
}

// Limits of the pause after a failed accept, which is usually due to a lack of
// file descriptors.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

var errNoAccept = errors.New("sockets: Accept has returned neither a connection nor an error")

func (l *listener) run() {
	s := l.socket
	s.report(Event{Kind: EventListening, Endpoint: l.endpoint})
	pause := acceptPauseMin
	for {
		nc, err := l.net.Accept()
		if nc == nil && err == nil { // a listener of Options.Listen may do that
			err = errNoAccept
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) || l.ending.Load() { // another listener may return another error
				s.report(Event{Kind: EventListenerClosed, Endpoint: l.endpoint})
				return
			}
			s.report(Event{Kind: EventAcceptFailed, Endpoint: l.endpoint, Err: err})
			select {
			case <-time.After(pause):
			case <-l.done:
			}
			pause = min(2*pause, acceptPauseMax)
			continue
		}
		pause = acceptPauseMin
		l.serve(nc)
	}
}

// serve starts a goroutine that serves an accepted connection.
func (l *listener) serve(nc net.Conn) {
	s := l.socket
	c, err := newConn(nc, s.opts())
	if err != nil {
		s.report(Event{Kind: EventAcceptFailed, Endpoint: l.endpoint, Err: err})
		return
	}
	c.place, c.descriptor = s.places.Add(1), link.Descriptor(nc)
	if err := s.admission.enter(c, l.done); err != nil {
		if err != ErrClosed {
			c.close(err) // first, because RemoteAddr may read; see below
			s.report(Event{Kind: EventAcceptFailed, Endpoint: l.endpoint, Remote: link.RemoteText(nc), Err: err})
		}
		c.finish()
		return
	}
	if !l.enter(c) {
		s.admission.leave(c)
		c.finish()
		return
	}
	s.wg.Go(func() {
		// A connection of Options.Listen may read the address from the first bytes, so
		// this may wait for the peer.
		s.report(Event{Kind: EventAccepted, Endpoint: l.endpoint, Remote: link.RemoteText(nc)})
		_ = s.serve(c, nil, l.endpoint, func() { l.established(c) }) // reports the error itself
		l.leave(c)
	})
}

// enter lists a new connection. It reports false if the listener is closed.
func (l *listener) enter(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isClosed(l.done) {
		return false
	}
	l.conns[c] = false
	return true
}

// established records that the handshake of c has succeeded.
func (l *listener) established(c *conn) {
	l.socket.admission.established(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
}

// leave removes a connection that has ended.
func (l *listener) leave(c *conn) {
	l.socket.admission.leave(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}
