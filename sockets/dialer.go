package sockets

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"clustermap/zmtp"
)

// dialer keeps one endpoint connected: it dials, serves the connection, and
// after its end dials again.
type dialer struct {
	socket   *socket
	endpoint endpoint
	pipe     *pipe
	ctx      context.Context
	cancel   context.CancelFunc
	done     atomic.Bool          // no further connection is made
	joined   chan *half           // inproc: gets our half once there is a connection, or nil; capacity 1
	near     atomic.Pointer[half] // inproc: our half, once the connection is made

	conn atomic.Pointer[conn] // the present connection, also during its handshake; nil over inproc
}

// Connect connects to an endpoint and keeps it connected: the connection is
// made in the background, and made again when it is lost. Connecting again to
// the same endpoint does nothing for REQ, DEALER, PUB and SUB over a network,
// and makes another connection else, as libzmq has it. The endpoint is one of
//
//   - tcp://host:port, where a name is resolved at each attempt, or
//     tcp://source;host:port to connect from an address or interface and port
//     (each of them may be *);
//   - ipc://path, or on Linux ipc://@name: a Unix domain socket;
//   - inproc://name: a socket of the same process, see [Inproc]. If the name
//     is bound, they are connected when Connect returns.
//
// A peer that breaks the protocol, refuses this socket, or is of a type it cannot
// talk to, is dialled again, since it may be repaired. The wait is then the longest
// one, Options.ReconnectIntervalMax, and the monitor is told of the error and of
// ConnectRetried with the same error. (libzmq gives such a peer up, as
// StopOnProtocolError does here.) A connection is given up only where
// Options.ReconnectStop says so, with a negative Options.ReconnectInterval, or
// when a ROUTER with Options.Handover has given its identity to another peer.
// Connect can then be called again.
func (s *socket) Connect(address string) error {
	return s.connect(address, nil)
}

// connect is Connect, for a pipe of the given name if it is not nil.
func (s *socket) connect(address string, name []byte) error {
	e, err := parseEndpoint(address, false)
	if err != nil {
		return err
	}
	d, err := s.dialer(e, name)
	if d != nil && e.transport == transportInproc {
		s.inproc().connect(d)
	}
	return err
}

// connectsOnce says that a second connection to an endpoint would be of no use.
func (s *socket) connectsOnce(e endpoint) bool {
	switch s.kind {
	case zmtp.REQ, zmtp.DEALER, zmtp.PUB, zmtp.SUB:
		return e.transport != transportInproc
	}
	return false
}

// dialer starts a dialer of an endpoint, unless one is enough and there.
func (s *socket) dialer(e endpoint, name []byte) (*dialer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.last = e.text
	if len(s.dialers[e.text]) > 0 && s.connectsOnce(e) {
		return nil, nil
	}
	d := &dialer{socket: s, endpoint: e, pipe: newPipe(s, e.text, true)}
	d.pipe.name, d.pipe.dialer = name, d
	d.ctx, d.cancel = context.WithCancel(s.ctx)
	s.dialers[e.text] = append(s.dialers[e.text], d)
	s.pipes[d.pipe] = struct{}{}
	s.pattern.added(d.pipe)
	s.in.watch.tell()
	if e.transport == transportInproc {
		d.joined = make(chan *half, 1)
		s.wg.Go(d.runInproc)
	} else {
		s.wg.Go(d.run)
	}
	return d, nil
}

// Disconnect takes back Connect, and if it was called several times with the
// same endpoint, all of that: nothing more is queued for the endpoint, and the
// connection ends. Messages that are queued already are still written in the
// background, within Options.Linger; Close waits for that. Messages that were
// received from the endpoint and not yet taken by the application are dropped, as
// in libzmq, and so are those that arrive later. The text must be the one given to
// Connect.
//
// An inproc connection has ended, for both sides, when Disconnect returns.
// Therefore Options.Prepare must not call Disconnect.
func (s *socket) Disconnect(address string) error {
	local, received, err := s.disconnect(address)
	for _, h := range local {
		h.conn.close(ErrClosed)
		h.finish()
	}
	drop(received)
	return err
}

// disconnect does the part of Disconnect that needs s.mu. It returns the rest of the
// work, for which no lock may be held: the inproc connections to finish and the
// received batches to drop.
func (s *socket) disconnect(address string) (local []*half, received []inbatch, err error) {
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
		d.pipe.out.seal()
		received = append(received, s.in.cut(&d.pipe.in)...)
		if h := d.near.Load(); h != nil {
			local = append(local, h)
			d.cancel()
			continue
		}
		if s.opts.ReconnectStop&StopAfterDisconnect != 0 {
			d.done.Store(true)
		}
		if s.opts.Linger < 0 || d.done.Load() && d.pipe.peer.Load() == nil {
			d.cancel()
			continue
		}
		s.wg.Go(d.linger)
	}
	return local, received, nil
}

// linger ends the dialer once what was queued has been written.
func (d *dialer) linger() {
	defer d.cancel()
	ctx, cancel := context.WithTimeout(d.ctx, d.socket.opts.longestLinger())
	defer cancel()
	d.pipe.finish(ctx)
}

func (d *dialer) run() {
	s := d.socket
	defer d.end()
	attempt := 0
	for d.ctx.Err() == nil && !d.done.Load() {
		final := false
		var refusal error
		if d.endpoint.transport == transportTCP {
			s.report(Event{Kind: ConnectDelayed, Endpoint: d.endpoint.text})
		}
		nc, err := d.dial()
		switch {
		case err != nil:
			s.report(Event{Kind: ConnectFailed, Endpoint: d.endpoint.text, Err: err})
			final = s.opts.ReconnectStop&StopOnRefused != 0 && refused(err)
		case isSelf(nc):
			nc.Close()
		default:
			attempt = 0
			final, refusal = d.serve(nc)
		}
		if final || s.opts.ReconnectInterval < 0 || d.ctx.Err() != nil || d.done.Load() {
			return
		}
		wait := s.backOff(attempt)
		attempt++
		if refusal != nil {
			wait = max(wait, s.longestInterval())
		}
		s.report(Event{Kind: ConnectRetried, Endpoint: d.endpoint.text, Err: refusal, Retry: wait})
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			timer.Stop()
		}
	}
}

// dial makes one attempt to connect.
func (d *dialer) dial() (net.Conn, error) {
	ctx := d.ctx
	if limit := d.socket.connectLimit(); !limit.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, limit)
		defer cancel()
	}
	if d.endpoint.transport == transportIPC {
		return d.socket.dialIPC(ctx, d.endpoint)
	}
	return d.socket.dialTCP(ctx, d.endpoint)
}

// end forgets the dialer, so that the endpoint can be connected again.
func (d *dialer) end() {
	s := d.socket
	s.mu.Lock()
	same := s.dialers[d.endpoint.text]
	if i := slices.Index(same, d); i >= 0 {
		same = slices.Delete(same, i, i+1)
		if s.dialers[d.endpoint.text] = same; len(same) == 0 {
			delete(s.dialers, d.endpoint.text)
		}
	}
	s.mu.Unlock()
	d.cancel()
	s.leave(d.pipe)
}

// serve runs a new connection to its end. It reports whether to stop dialling. If
// not, and the peer broke the protocol, refused this socket or is of a type that
// it cannot talk to, serve returns that error: another attempt will fail until one
// of the two sides is repaired.
func (d *dialer) serve(nc net.Conn) (final bool, refusal error) {
	s := d.socket
	s.tune(nc)
	c, err := newConn(nc)
	if err != nil {
		return false, nil
	}
	stop := context.AfterFunc(d.ctx, func() { c.close(ErrClosed) })
	defer stop()
	d.conn.Store(c)
	defer d.conn.Store(nil)
	s.report(Event{Kind: Connected, Endpoint: d.endpoint.text, Remote: nc.RemoteAddr().String()})
	up := false
	err = s.serve(c, d.pipe, d.endpoint.text, func() { up = true })
	if !up && s.opts.ReconnectStop&StopOnHandshakeFailed != 0 {
		return true, nil
	}
	if errors.Is(err, ErrHandedOver) {
		return true, nil // or the two would take it from each other for ever
	}
	var protocol *zmtp.ProtocolError
	if !errors.As(err, &protocol) || errors.Is(err, ErrTemporary) {
		return false, nil
	}
	return s.opts.ReconnectStop&StopOnProtocolError != 0, err
}

// longestInterval returns the wait before a peer that could not be talked to is
// dialled again.
func (s *socket) longestInterval() time.Duration {
	if most := s.opts.ReconnectIntervalMax; most > 0 {
		return most
	}
	// Random, so that many clients of a server do not come back all at once.
	return DefaultReconnectIntervalMax - rand.N(DefaultReconnectIntervalMax/2)
}

// refused says that nobody listens where an attempt to connect went.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// backOff returns the wait before the next attempt, as libzmq has it
// (ZMQ_RECONNECT_IVL, ZMQ_RECONNECT_IVL_MAX).
func (s *socket) backOff(attempt int) time.Duration {
	ivl, most := s.opts.ReconnectInterval, s.opts.ReconnectIntervalMax
	if most == 0 {
		return ivl + rand.N(ivl)
	}
	if attempt > 62 || ivl > most>>attempt {
		return most
	}
	return ivl << attempt
}
