package sockets

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"clustermap/internal/link"
	"clustermap/zmtp"
)

// dialer keeps one endpoint connected: it dials, serves the connection, and
// dials again when the connection has ended.
type dialer struct {
	socket   *socket
	endpoint link.Endpoint
	pipe     *pipe
	ctx      context.Context
	cancel   context.CancelFunc
	done     atomic.Bool          // make no further connection
	attempts attempts             // how they go
	joined   chan *half           // inproc: receives our half of the connection, or nil; capacity 1
	near     atomic.Pointer[half] // inproc: our half, once connected

	conn atomic.Pointer[conn] // the current connection, also during its handshake; nil over inproc
}

// Connect connects to an endpoint and keeps it connected. It returns
// immediately; the socket makes the connection in the background and makes it
// again if it is lost. The endpoint is one of:
//
//   - tcp://host:port. The socket resolves a name again for each attempt. If it
//     has several addresses, an attempt tries them all, as in RFC 8305: one is
//     begun when the one before has failed or has not answered for 250 ms, and
//     those that have failed lately come last. With
//     tcp://source;host:port it connects from the given local address, where
//     source is an IP address or network interface and a port, and each of the
//     two may be *.
//   - ipc://path, a Unix domain socket, or on Linux ipc://@name, a name in the
//     abstract namespace.
//   - inproc://name, a socket in the same process; see [Inproc]. If the name is
//     bound, the sockets are connected when Connect returns.
//
// As in libzmq, connecting a second time to the same tcp or ipc endpoint has no
// effect for a REQ, DEALER, PUB or SUB. In all other cases it makes another
// connection.
//
// If the peer violates the protocol, refuses this socket or has an incompatible
// socket type, the socket waits for [Options.ReconnectIntervalMax], reports
// EventConnectRetried with the error to the monitor, and connects again; libzmq
// gives up, which ReconnectStopOnProtocolError selects here. The socket gives up an
// endpoint only under the conditions of [Options.ReconnectStop], after the
// first failure if Options.ReconnectInterval is negative, or if a ROUTER with
// [Options.Handover] has transferred its identity to another peer. It then
// reports EventAbandoned, and Connect can be called again. Over inproc it gives the
// endpoint up when the connection ends. Endpoints tells how the attempts go.
//
// The error is an [*EndpointError] if the address is malformed.
func (s *socket) Connect(address string) error {
	return s.connect(address, nil)
}

// connect implements Connect. If name is not nil, it becomes the name of the
// pipe.
func (s *socket) connect(address string, name []byte) error {
	e, err := link.Parse(address, false)
	if err != nil {
		return err
	}
	if s.opts().Dial != nil && e.HasSource() {
		return &EndpointError{Endpoint: address, Reason: "has a source address, which Options.Dial does not take"}
	}
	if err := s.carries(e); err != nil {
		return err
	}
	d, err := s.dialer(e, name)
	if d != nil && e.Scheme == link.Inproc {
		s.opts().Inproc.connect(d)
	}
	return err
}

// connectsOnce reports whether the socket makes only one connection to an
// endpoint.
func (s *socket) connectsOnce(e link.Endpoint) bool {
	switch s.kind {
	case zmtp.TypeReq, zmtp.TypeDealer, zmtp.TypePub, zmtp.TypeSub:
		return e.Scheme != link.Inproc
	}
	return false
}

// dialer starts a dialer for an endpoint, unless one exists and is enough.
func (s *socket) dialer(e link.Endpoint, name []byte) (*dialer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.last = e.Text
	if len(s.dialers[e.Text]) > 0 && s.connectsOnce(e) {
		return nil, nil
	}
	d := &dialer{socket: s, endpoint: e, pipe: newPipe(s, e.Text, true)}
	d.pipe.name, d.pipe.dialer = name, d
	d.ctx, d.cancel = context.WithCancel(s.ctx)
	s.dialers[e.Text] = append(s.dialers[e.Text], d)
	s.pipes[d.pipe] = struct{}{}
	s.pattern.added(d.pipe)
	s.in.Tell()
	if e.Scheme == link.Inproc {
		d.joined = make(chan *half, 1)
		s.wg.Go(d.runInproc)
	} else {
		s.wg.Go(d.run)
	}
	return d, nil
}

// Disconnect closes the connection to an endpoint and stops connecting to it.
// The address must be the text given to Connect. If Connect was called several
// times with it, Disconnect closes all these connections. It returns
// ErrNotConnected if there is none.
//
// Messages that are already queued for the endpoint are still written in the
// background, within [Options.Linger], and Close waits for that. As in libzmq,
// messages that were received from the endpoint but not yet by the application
// are dropped, and so are those that arrive later.
//
// A connection over inproc has ended on both sides when Disconnect returns.
// Therefore [Options.Prepare] must not call Disconnect.
func (s *socket) Disconnect(address string) error {
	local, cut, err := s.disconnect(address)
	for _, p := range cut {
		s.in.Cut(&p.in)
	}
	for _, h := range local {
		h.conn.close(ErrClosed)
		h.finish()
	}
	return err
}

// disconnect does the part of Disconnect that needs s.mu. It returns the rest, which must
// be done without a lock: the inproc connections to finish, and the pipes whose received
// messages are to be dropped.
func (s *socket) disconnect(address string) (local []*half, cut []*pipe, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, ErrClosed
	}
	same := s.dialers[address]
	if len(same) == 0 {
		return nil, nil, ErrNotConnected
	}
	delete(s.dialers, address)
	for _, d := range same {
		s.pattern.removed(d.pipe)
		d.pipe.out.Seal()
		cut = append(cut, d.pipe)
		if h := d.near.Load(); h != nil {
			local = append(local, h)
			d.cancel()
			continue
		}
		if s.opts().ReconnectStop&ReconnectStopAfterDisconnect != 0 {
			d.done.Store(true)
		}
		if s.opts().Linger < 0 || d.done.Load() && d.pipe.peer.Load() == nil {
			d.cancel()
			continue
		}
		s.wg.Go(d.linger)
	}
	return local, cut, nil
}

// linger ends the dialer when the queued messages have been written.
func (d *dialer) linger() {
	defer d.cancel()
	ctx, cancel := context.WithTimeout(d.ctx, d.socket.opts().longestLinger())
	defer cancel()
	d.pipe.finish(ctx)
}

func (d *dialer) run() {
	s := d.socket
	defer d.abandon()
	attempt := 0
	for d.ctx.Err() == nil && !d.done.Load() {
		final := false
		var refusal error
		if !d.endpoint.Local() {
			s.report(Event{Kind: EventConnectDelayed, Endpoint: d.endpoint.Text})
		}
		nc, err := d.dial()
		switch {
		case err == link.ErrSelf: // the next attempt will get another port
		case err != nil:
			d.attempts.failed(err, false)
			s.report(Event{Kind: EventConnectFailed, Endpoint: d.endpoint.Text, Err: err})
			final = s.opts().ReconnectStop&ReconnectStopOnRefused != 0 && refused(err)
		default:
			attempt = 0
			final, refusal = d.serve(nc)
		}
		if final || s.opts().ReconnectInterval < 0 || d.ctx.Err() != nil || d.done.Load() {
			return
		}
		wait := s.backOff(attempt)
		attempt++
		if refusal != nil {
			wait = max(wait, s.longestInterval())
		}
		d.attempts.waits(time.Now().Add(wait))
		s.report(Event{Kind: EventConnectRetried, Endpoint: d.endpoint.Text, Err: refusal, Retry: wait})
		select {
		case <-time.After(wait):
		case <-d.ctx.Done():
		}
		d.attempts.waits(time.Time{})
	}
}

// dial makes one attempt to connect.
func (d *dialer) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.socket.opts().ConnectTimeout)
	defer cancel()
	return link.Dial(ctx, d.endpoint, d.socket.linkOptions())
}

// end removes the dialer, so that the endpoint can be connected again. It reports
// false if Disconnect has removed it before.
func (d *dialer) end() bool {
	s := d.socket
	s.mu.Lock()
	listed := dropFrom(s.dialers, d.endpoint.Text, d)
	s.mu.Unlock()
	d.cancel()
	s.leave(d.pipe)
	return listed
}

// serve runs a new connection until it ends. It reports whether to stop
// dialling. If not, and the peer has violated the protocol, refused this socket
// or has an incompatible type, serve returns that error: another attempt will
// fail until one of the two sides is corrected.
func (d *dialer) serve(nc net.Conn) (final bool, refusal error) {
	s := d.socket
	c, err := newConn(nc, s.opts())
	if err != nil {
		d.attempts.failed(err, false)
		return false, nil
	}
	stop := context.AfterFunc(d.ctx, func() { c.close(ErrClosed) })
	defer stop()
	d.conn.Store(c)
	defer d.conn.Store(nil)
	s.report(Event{Kind: EventConnected, Endpoint: d.endpoint.Text, Remote: link.RemoteText(nc)})
	up := false
	err = s.serve(c, d.pipe, d.endpoint.Text, func() {
		up = true
		link.Worked(nc)
		d.attempts.succeeded()
	})
	d.attempts.failed(err, up)
	// After a break the same server may be back soon; not after silence.
	var silence net.Error
	if d.ctx.Err() == nil && (!up || errors.Is(err, ErrHeartbeatTimeout) || errors.As(err, &silence) && silence.Timeout()) {
		link.Failed(nc)
	}
	if !up && s.opts().ReconnectStop&ReconnectStopOnHandshakeFailed != 0 {
		return true, nil
	}
	if errors.Is(err, ErrHandedOver) {
		return true, nil // otherwise two peers would take the identity from each other forever
	}
	var protocol *zmtp.ProtocolError
	if !errors.As(err, &protocol) || errors.Is(err, ErrTemporary) {
		return false, nil
	}
	return s.opts().ReconnectStop&ReconnectStopOnProtocolError != 0, err
}

// longestInterval returns the wait before the socket connects again to a peer
// that has refused it.
func (s *socket) longestInterval() time.Duration {
	if most := s.opts().ReconnectIntervalMax; most > 0 {
		return most
	}
	// Random, so that many clients of a server do not return at the same time.
	return DefaultReconnectIntervalMax - rand.N(DefaultReconnectIntervalMax/2)
}

// refused reports whether an attempt to connect failed because no process listens
// at the address.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// backOff returns the wait before the next attempt, computed as in libzmq
// (ZMQ_RECONNECT_IVL, ZMQ_RECONNECT_IVL_MAX).
func (s *socket) backOff(attempt int) time.Duration {
	o := s.opts()
	ivl, most := o.ReconnectInterval, o.ReconnectIntervalMax
	if most == 0 {
		return ivl + rand.N(max(ivl, 1)) // it may have become negative since the caller looked
	}
	if attempt > 62 || ivl > most>>attempt {
		return most
	}
	return ivl << attempt
}
