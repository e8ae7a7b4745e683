package sockets

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// listener accepts connections on one endpoint. Each connection does its handshake
// in a goroutine of its own; admission bounds how many there are.
type listener struct {
	socket   *socket
	net      net.Listener
	unlink   func() error // removes what ipc leaves in the file system; may be nil
	endpoint string

	done  chan struct{} // closed when the listener is
	mu    sync.Mutex
	conns map[*conn]bool // all accepted connections; true once the handshake has succeeded
}

// Bind listens on an endpoint:
//
//   - tcp://host:port, where host is an address, a name, a network interface's
//     name, or * for all interfaces, and port a number, or * or 0 for one of
//     the system's choice;
//   - ipc://path, a Unix domain socket. The file at path is made, and removed
//     when the endpoint is unbound; one that is in use is an error, and one
//     that a process which is no more has left is replaced. With ipc://@name it
//     is a name in Linux's abstract namespace instead, and with ipc://* a file
//     in a new directory for temporary files;
//   - inproc://name, for sockets of the same process: see [Inproc]. Those that
//     have connected to the name before are connected when Bind returns.
//
// LastEndpoint tells what the wildcards stand for. The context bounds the
// resolution of a name. An address in use is reported at once, as the network's
// error (a *net.OpError, syscall.EADDRINUSE).
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
	l := &listener{socket: s, conns: map[*conn]bool{}, done: make(chan struct{})}
	var name *inprocListener
	switch e.transport {
	case transportTCP:
		l.net, l.endpoint, err = s.listenTCP(ctx, e)
	case transportIPC:
		l.net, l.endpoint, l.unlink, err = s.listenIPC(ctx, e)
	case transportInproc:
		name, err = s.inproc().listen(s, e.name)
		l.net, l.endpoint = name, e.text
	}
	if err != nil {
		s.report(Event{Kind: BindFailed, Endpoint: address, Err: err})
		return err
	}
	if sc, ok := l.net.(syscall.Conn); ok && s.opts.Backlog > 0 {
		err = setBacklog(sc, s.opts.Backlog)
	}
	if err == nil {
		err = s.install(l)
	}
	if err != nil {
		_ = l.shut() // the other error came first
		return err
	}
	if name != nil {
		name.admit()
	}
	return nil
}

// install lists a listener and starts it.
func (s *socket) install(l *listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.listeners[l.endpoint] = l
	s.last = l.endpoint
	s.wg.Go(l.run)
	return nil
}

// Unbind stops listening on an endpoint, as LastEndpoint told it, and closes
// the connections accepted there, without regard to Options.Linger; those of
// inproc stay.
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
	if err := l.shut(); err != nil {
		l.socket.report(Event{Kind: CloseFailed, Endpoint: l.endpoint, Err: err})
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

// shut gives the address back.
func (l *listener) shut() error {
	err := l.net.Close()
	if l.unlink != nil {
		err = errors.Join(err, l.unlink())
	}
	return err
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
	c.place = s.places.Add(1)
	if err := s.admission.enter(c, l.done); err != nil {
		if err == ErrTooManyConnections {
			s.report(Event{Kind: AcceptFailed, Endpoint: l.endpoint, Remote: nc.RemoteAddr().String(), Err: err})
		}
		c.finish()
		return
	}
	s.report(Event{Kind: Accepted, Endpoint: l.endpoint, Remote: nc.RemoteAddr().String()})
	if !l.enter(c) {
		s.admission.leave(c)
		c.finish()
		return
	}
	s.wg.Go(func() {
		_ = s.serve(c, nil, l.endpoint, func() { l.established(c) }) // it reported the error
		l.leave(c)
	})
}

// enter lists a new connection. It fails once the listener is closed.
func (l *listener) enter(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		return false
	default:
	}
	l.conns[c] = false
	return true
}

// established says that the handshake of c has succeeded.
func (l *listener) established(c *conn) {
	l.socket.admission.established(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
}

// leave forgets a connection that has ended.
func (l *listener) leave(c *conn) {
	l.socket.admission.leave(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}
