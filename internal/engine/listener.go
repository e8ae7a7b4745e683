package engine

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
	"clustermap/internal/queue"
)

// listener accepts connections on one endpoint. Each connection performs its
// handshake in a goroutine of its own; admission limits their number.
type listener struct {
	socket   *Socket
	net      net.Listener
	endpoint string

	ending atomic.Bool // close was called

	done  chan struct{} // closed when the listener is closed
	mu    sync.Mutex
	conns map[*conn]bool // all accepted connections; true if the handshake has succeeded
}

// Bind listens for connections on an endpoint; see sockets.Socket.
func (s *Socket) Bind(ctx context.Context, address string) error {
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
	if err := s.Open(); err != nil {
		return err
	}
	if e.Scheme == link.Inproc {
		name, err := s.Config().Inproc.listen(s, e.Name)
		if err == nil {
			if err = s.Serve(name, e.Text); err == nil {
				name.admit()
			}
			return err
		}
		return s.bindFailed(address, err)
	}
	l, err := link.Listen(ctx, e, s.Config().Link)
	if err != nil {
		return s.bindFailed(address, err)
	}
	return s.Serve(l, l.Endpoint)
}

func (s *Socket) bindFailed(address string, err error) error {
	s.report(Event{Kind: BindFailed, Endpoint: address, Err: err})
	return err
}

// Serve accepts connections from a listener, which it closes in the end, also with an error.
func (s *Socket) Serve(from net.Listener, endpoint string) error {
	l := &listener{socket: s, net: from, endpoint: endpoint, conns: map[*conn]bool{}, done: make(chan struct{})}
	err := s.install(l)
	if err != nil {
		_ = from.Close() // the first error is more useful
	}
	return err
}

// install adds a listener to the socket and starts it.
func (s *Socket) install(l *listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return queue.ErrClosed
	}
	if s.endpoints.listeners[l.endpoint] != nil { // a listener of Options.Listen may have any address
		return &net.OpError{Op: "listen", Net: "sockets", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	s.endpoints.listeners[l.endpoint] = l
	s.endpoints.last = l.endpoint
	s.wg.Go(l.run)
	return nil
}

// Unbind stops listening on an endpoint and closes the connections accepted on it; see
// sockets.Socket.
func (s *Socket) Unbind(address string) error {
	s.mu.Lock()
	l := s.endpoints.listeners[address]
	delete(s.endpoints.listeners, address)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return queue.ErrClosed
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
		l.socket.report(Event{Kind: CloseFailed, Endpoint: l.endpoint, Err: err})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.done)
	for c, established := range l.conns {
		if !established {
			c.Close(queue.ErrClosed)
		}
	}
}

// disconnect closes all connections. It is called after close, so no further
// ones can appear.
func (l *listener) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close(queue.ErrClosed)
	}
}

var errNoAccept = errors.New("sockets: Accept has returned neither a connection nor an error")

func (l *listener) run() {
	s := l.socket
	s.report(Event{Kind: Listening, Endpoint: l.endpoint})
	pause := acceptPauseMin
	for {
		nc, err := l.net.Accept()
		if nc == nil && err == nil { // a listener of Options.Listen may do that
			err = errNoAccept
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) || l.ending.Load() { // another listener may return another error
				s.report(Event{Kind: ListenerClosed, Endpoint: l.endpoint})
				return
			}
			s.report(Event{Kind: AcceptFailed, Endpoint: l.endpoint, Err: err})
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
	c, err := newConn(nc, s.Config())
	if err != nil {
		s.report(Event{Kind: AcceptFailed, Endpoint: l.endpoint, Err: err})
		return
	}
	c.place, c.guest.Descriptor = s.places.Add(1), link.Descriptor(nc)
	if err := s.admission.Enter(&c.guest, l.done); err != nil {
		if err != queue.ErrClosed {
			c.Close(err) // first, because RemoteAddr may read; see below
			s.report(Event{Kind: AcceptFailed, Endpoint: l.endpoint, Remote: link.RemoteText(nc), Err: err})
		}
		c.Finish()
		return
	}
	if !l.enter(c) {
		s.admission.Leave(&c.guest)
		c.Finish()
		return
	}
	s.wg.Go(func() {
		// A connection of Options.Listen may read the address from the first bytes, so
		// this may wait for the peer.
		s.report(Event{Kind: Accepted, Endpoint: l.endpoint, Remote: link.RemoteText(nc)})
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
	l.socket.admission.Established(&c.guest)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
}

// leave removes a connection that has ended.
func (l *listener) leave(c *conn) {
	l.socket.admission.Leave(&c.guest)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}
