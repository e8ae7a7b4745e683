package sockets

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
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
}

// Connect connects to an endpoint, tcp://host:port, and keeps it connected:
// the connection is made in the background, and made again when it is lost. A
// name is resolved at each attempt. Connecting again to the same endpoint does
// nothing.
func (s *socket) Connect(address string) error {
	e, err := parseEndpoint(address, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.last = e.text
	if s.dialers[e.text] != nil {
		return nil
	}
	d := &dialer{socket: s, endpoint: e, pipe: newPipe(s, e.text, true)}
	d.ctx, d.cancel = context.WithCancel(s.ctx)
	s.dialers[e.text] = d
	s.pipes[d.pipe] = struct{}{}
	s.pattern.added(d.pipe)
	s.wg.Go(d.run)
	return nil
}

// Disconnect ends the connection to an endpoint and gives up what is queued
// for it. The text must be the one given to Connect.
func (s *socket) Disconnect(address string) error {
	s.mu.Lock()
	d := s.dialers[address]
	delete(s.dialers, address)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if d == nil {
		return ErrNotConnected
	}
	d.cancel()
	if peer := d.pipe.peer.Load(); peer != nil {
		peer.conn.close(ErrClosed)
	}
	return nil
}

func (d *dialer) run() {
	s := d.socket
	defer s.leave(d.pipe)
	attempt := 0
	for d.ctx.Err() == nil {
		permanent := false
		nc, err := (&net.Dialer{}).DialContext(d.ctx, "tcp", d.endpoint.address())
		switch {
		case err != nil:
			s.report(Event{Kind: ConnectFailed, Endpoint: d.endpoint.text, Err: err})
		case isSelf(nc):
			nc.Close()
		default:
			attempt = 0
			permanent = d.serve(nc)
		}
		if permanent || s.opts.ReconnectInterval < 0 || d.ctx.Err() != nil {
			return
		}
		wait := s.backOff(attempt)
		attempt++
		s.report(Event{Kind: ConnectRetried, Endpoint: d.endpoint.text, Retry: wait})
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			timer.Stop()
		}
	}
}

// serve runs a new connection to its end. It reports whether dialling again is
// pointless because the peer is not one that this socket can talk to.
func (d *dialer) serve(nc net.Conn) (permanent bool) {
	s := d.socket
	s.tune(nc)
	c, err := newConn(nc)
	if err != nil {
		return false
	}
	stop := context.AfterFunc(d.ctx, func() { c.close(ErrClosed) })
	defer stop()
	s.report(Event{Kind: Connected, Endpoint: d.endpoint.text, Remote: nc.RemoteAddr().String()})
	err = s.serve(c, d.pipe, d.endpoint.text, func() {})
	var protocol *zmtp.ProtocolError
	return errors.As(err, &protocol)
}

// isSelf recognises a connection to its own port, which TCP makes when the
// port dialled happens to be chosen as the local one.
func isSelf(nc net.Conn) bool { return nc.LocalAddr().String() == nc.RemoteAddr().String() }

// backOff returns the wait before the next attempt, as libzmq has it
// (ZMQ_RECONNECT_IVL, ZMQ_RECONNECT_IVL_MAX).
func (s *socket) backOff(attempt int) time.Duration {
	ivl, most := s.opts.ReconnectInterval, s.opts.ReconnectIntervalMax
	if most == 0 {
		return ivl + rand.N(ivl)
	}
	if attempt > 30 || ivl<<attempt > most || ivl<<attempt < ivl {
		return most
	}
	return ivl << attempt
}
