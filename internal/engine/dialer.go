package engine

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
	"clustermap/internal/queue"
	"clustermap/internal/wake"
	"clustermap/zmtp"
)

// dialer keeps one endpoint connected: it dials, serves the connection, and
// dials again when the connection has ended.
type dialer struct {
	socket   *Socket
	endpoint link.Endpoint
	pipe     *Pipe
	ctx      context.Context
	cancel   context.CancelFunc
	done     atomic.Bool          // make no further connection
	attempts attempts             // how they go
	joined   chan *half           // inproc: receives our half of the connection, or nil; capacity 1
	near     atomic.Pointer[half] // inproc: our half, once connected
	tried    int                  // keys of the server that were wrong, since an attempt failed for another reason

	conn atomic.Pointer[conn] // the current connection, also during its handshake; nil over inproc
}

// Connect connects to an endpoint and keeps it connected; see sockets.Socket. If name is not
// nil, it becomes the name of the pipe.
func (s *Socket) Connect(address string, name []byte) error {
	e, err := link.Parse(address, false)
	if err != nil {
		return err
	}
	if s.Config().Link.DialWith != nil && e.HasSource() {
		return &link.EndpointError{Endpoint: address, Reason: "has a source address, which Options.Dial does not take"}
	}
	if err := s.carries(e); err != nil {
		return err
	}
	d, err := s.dialer(e, name)
	if d != nil && e.Scheme == link.Inproc {
		s.Config().Inproc.connect(d)
	}
	return err
}

// carries returns an error if the socket cannot use an endpoint.
func (s *Socket) carries(e link.Endpoint) error {
	if s.pattern.Raw && e.Scheme == link.Inproc {
		return &link.EndpointError{Endpoint: e.Text, Reason: "carries messages, not bytes; a STREAM uses tcp or ipc"}
	}
	return nil
}

// dialer starts a dialer for an endpoint, unless one exists and is enough.
func (s *Socket) dialer(e link.Endpoint, name []byte) (*dialer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, queue.ErrClosed
	}
	s.endpoints.last = e.Text
	if len(s.endpoints.dialers[e.Text]) > 0 && s.pattern.Once && e.Scheme != link.Inproc {
		return nil, nil
	}
	d := &dialer{socket: s, endpoint: e, pipe: NewPipe(s, e.Text, true)}
	d.pipe.Name, d.pipe.dialer = name, d
	d.ctx, d.cancel = context.WithCancel(s.ctx)
	s.endpoints.dialers[e.Text] = append(s.endpoints.dialers[e.Text], d)
	s.pipes[d.pipe] = struct{}{}
	s.pattern.Added(d.pipe)
	s.In.Tell()
	if e.Scheme == link.Inproc {
		d.joined = make(chan *half, 1)
		s.wg.Go(d.runInproc)
	} else {
		s.wg.Go(d.run)
	}
	return d, nil
}

// Disconnect closes the connections to an endpoint and stops connecting to it; see
// sockets.Socket.
func (s *Socket) Disconnect(address string) error {
	local, cut, err := s.disconnect(address)
	for _, p := range cut {
		s.In.Cut(&p.In)
	}
	for _, h := range local {
		h.conn.Close(queue.ErrClosed)
		h.finish()
	}
	return err
}

// disconnect does the part of Disconnect that needs s.mu. It returns the rest, which must
// be done without a lock: the inproc connections to finish, and the pipes whose received
// messages are to be dropped.
func (s *Socket) disconnect(address string) (local []*half, cut []*Pipe, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, queue.ErrClosed
	}
	same := s.endpoints.dialers[address]
	if len(same) == 0 {
		return nil, nil, ErrNotConnected
	}
	delete(s.endpoints.dialers, address)
	for _, d := range same {
		s.pattern.Removed(d.pipe)
		d.pipe.Out.Seal()
		cut = append(cut, d.pipe)
		if h := d.near.Load(); h != nil {
			local = append(local, h)
			d.cancel()
			continue
		}
		if s.Config().ReconnectStop&StopAfterDisconnect != 0 {
			d.done.Store(true)
		}
		if s.Config().Linger < 0 || d.done.Load() && d.pipe.peer.Load() == nil {
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
	d.pipe.finishWithin(d.ctx)
}

func (d *dialer) run() {
	s := d.socket
	defer d.abandon()
	attempt := 0
	for d.ctx.Err() == nil && !d.done.Load() {
		final := false
		var refusal error
		if !d.endpoint.Local() {
			s.report(Event{Kind: ConnectDelayed, Endpoint: d.endpoint.Text})
		}
		nc, err := d.dial()
		switch {
		case err == link.ErrSelf: // the next attempt will get another port
		case err != nil:
			d.tried = 0
			d.attempts.failed(err, false)
			s.report(Event{Kind: ConnectFailed, Endpoint: d.endpoint.Text, Err: err})
			final = s.Config().ReconnectStop&StopOnRefused != 0 && refused(err)
		default:
			attempt = 0
			if final, refusal = d.serve(nc); d.tried > 0 && d.ctx.Err() == nil && !d.done.Load() {
				s.report(Event{Kind: ConnectRetried, Endpoint: d.endpoint.Text, Err: ErrServerKey})
				continue
			}
		}
		if final || s.Config().ReconnectInterval < 0 || d.ctx.Err() != nil || d.done.Load() {
			return
		}
		wait := s.backOff(attempt)
		attempt++
		if refusal != nil {
			wait = max(wait, s.longestInterval())
		}
		d.attempts.waits(time.Now().Add(wait))
		s.report(Event{Kind: ConnectRetried, Endpoint: d.endpoint.Text, Err: refusal, Retry: wait})
		wake.Pause(d.ctx, wait)
		d.attempts.waits(time.Time{})
	}
}

// dial makes one attempt to connect.
func (d *dialer) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.socket.Config().ConnectTimeout)
	defer cancel()
	return link.Dial(ctx, d.endpoint, d.socket.Config().Link)
}

// end removes the dialer, so that the endpoint can be connected again. It reports
// false if Disconnect has removed it before.
func (d *dialer) end() bool {
	s := d.socket
	s.mu.Lock()
	listed := DropFrom(s.endpoints.dialers, d.endpoint.Text, d)
	s.mu.Unlock()
	d.cancel()
	s.leave(d.pipe)
	return listed
}

// serve runs a new connection until it ends. It reports whether to stop
// dialling. If not, and the peer has violated the protocol, refused this socket
// or has an incompatible type, serve returns that error: another attempt will
// fail until one of the two sides is corrected. If the server has another key than this connection took it
// to have, tried is above 0 and the next key is to be tried now.
func (d *dialer) serve(nc net.Conn) (final bool, refusal error) {
	s := d.socket
	c, err := newConn(nc, s.Config())
	if err != nil {
		d.attempts.failed(err, false)
		return false, nil
	}
	stop := context.AfterFunc(d.ctx, func() { c.Close(queue.ErrClosed) })
	defer stop()
	d.conn.Store(c)
	defer d.conn.Store(nil)
	if keys := c.config.Security.ServerKeys; keys > 1 {
		c.key, c.more = (int(s.serverKey.Load())+d.tried)%keys, d.tried+1 < keys
	}
	s.report(Event{Kind: Connected, Endpoint: d.endpoint.Text, Remote: link.RemoteText(nc)})
	up := false
	err = s.serve(c, d.pipe, d.endpoint.Text, func() {
		up = true
		s.serverKey.Store(int32(c.key))
		link.Worked(nc)
		d.attempts.succeeded()
	})
	if !up && c.nextKey(err) {
		d.tried++
		return false, nil
	}
	d.tried = 0
	d.attempts.failed(err, up)
	// After a break the same server may be back soon; not after silence.
	var silence net.Error
	if d.ctx.Err() == nil && (!up || errors.Is(err, ErrHeartbeatTimeout) || errors.As(err, &silence) && silence.Timeout()) {
		link.Failed(nc)
	}
	if !up && s.Config().ReconnectStop&StopOnHandshakeFailed != 0 {
		return true, nil
	}
	if errors.Is(err, ErrHandedOver) {
		return true, nil // otherwise two peers would take the identity from each other forever
	}
	var protocol *zmtp.ProtocolError
	if !errors.As(err, &protocol) || errors.Is(err, ErrTemporary) {
		return false, nil
	}
	return s.Config().ReconnectStop&StopOnProtocolError != 0, err
}

// longestInterval returns the wait before the socket connects again to a peer
// that has refused it.
func (s *Socket) longestInterval() time.Duration {
	if most := s.Config().ReconnectIntervalMax; most > 0 {
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
func (s *Socket) backOff(attempt int) time.Duration {
	o := s.Config()
	ivl, most := o.ReconnectInterval, o.ReconnectIntervalMax
	if most == 0 {
		return ivl + rand.N(max(ivl, 1)) // it may have become negative since the caller looked
	}
	if attempt > 62 || ivl > most>>attempt {
		return most
	}
	return ivl << attempt
}
