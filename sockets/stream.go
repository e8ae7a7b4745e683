package sockets

import (
	"context"

	"clustermap/internal/link"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Stream is a STREAM socket: it exchanges bytes with peers that do not speak
// ZMTP, over tcp and ipc (ZMQ_STREAM). A server for HTTP, or a client of any
// protocol over TCP, can thus be polled and limited like other sockets.
//
// A received message has two frames: the peer's identity, and bytes as they
// were read, at most 32 KiB. The boundaries between messages mean nothing. When
// a peer connects, and when its connection ends, the second frame is empty; see
// [Options.Notify]. A message to send has the identity and the bytes.
//
// Each peer has an identity of five bytes, of which the first is zero, or the
// one given to ConnectAs. Each accepted connection gets another one. The
// connections of one Connect, one after another, have the same; Peers returns it.
//
// A STREAM adds nothing to the bytes and expects nothing of them. So it can talk
// to a socket of another type only if the application speaks ZMTP itself, as in
// libzmq. SendHWM and RecvHWM count calls of Send and reads.
//
// A [Proxy] forwards notices like other messages. So a single STREAM that is both of
// its sides needs [NotifyNone], because the notice of a connection would come back
// and close it.
//
// All methods are safe for concurrent use.
type Stream struct {
	receiving
	defaults
	routes routes
}

// NewStream returns a new STREAM socket. If options are invalid, the error joins
// an [*OptionError] for each of them. Options that need ZMTP, such as Security and
// HeartbeatInterval, do not apply.
func NewStream(o Options) (*Stream, error) {
	s := &Stream{}
	s.routes.init()
	return made(s, s.init(zmtp.TypeStream, o, s))
}

// carries returns an error if the socket cannot use the transport of an endpoint.
func (s *socket) carries(e link.Endpoint) error {
	if s.kind == zmtp.TypeStream && e.Scheme == link.Inproc {
		return &EndpointError{Endpoint: e.Text, Reason: "carries messages, not bytes; a STREAM uses tcp or ipc"}
	}
	return nil
}

// ConnectAs is like Connect, but the socket uses the given identity for the peer
// (ZMQ_CONNECT_ROUTING_ID).
//
// An identity must have 1 to 255 bytes and must not begin with a zero byte;
// otherwise the error is an [*OptionError]. If another peer has the identity,
// the error is ErrIdentityInUse.
func (s *Stream) ConnectAs(endpoint string, identity []byte) error {
	return s.connectAs(&s.routes, endpoint, identity)
}

// Send sends the bytes of frames[1:], one after another, to the peer whose
// identity is frames[0]. It copies them. If the peer's queue is full, Send waits
// until the context is done or until Options.SendTimeout has passed
// (ErrTimeout). If there is no such peer, the error is ErrUnroutable.
//
// If there are no bytes, Send closes the peer's connection. Bytes queued for the peer are
// still written, in the background and within [Options.Linger]. Nothing more is received
// from the peer, not even the notice of the end. A connection that was made with Connect
// is not made again.
//
// Bytes can be sent to a peer of Connect that is not connected; they wait for
// the connection. Bytes that are queued when a connection ends are dropped.
// SendTo never sends to a later connection.
//
// If frames has only one element, Send does nothing.
func (s *Stream) Send(ctx context.Context, frames ...[]byte) error {
	if err := s.check(frames); err != nil {
		return err
	}
	if len(frames) == 1 {
		return nil // an identity alone is no message
	}
	to := s.routes.find(frames[0])
	if to.pipe == nil {
		return ErrUnroutable
	}
	return s.sendTo(ctx, to, frames[1:])
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (s *Stream) TrySend(frames ...[]byte) error { return s.Send(queue.NoWait, frames...) }

// SendTo is like Send, to the connection of the given peer, such as the one
// returned by RecvFrom. Without frames it closes the connection, as Send does
// without bytes. If the connection has ended, the error is ErrUnroutable.
// If the peer is nil or belongs to another socket, the error is ErrForeignPeer.
func (s *Stream) SendTo(ctx context.Context, peer *Peer, frames ...[]byte) error {
	if len(frames) > 0 {
		if err := s.check(frames); err != nil {
			return err
		}
	}
	if !s.owns(peer) {
		return ErrForeignPeer
	}
	return s.sendTo(ctx, route{peer.pipe, &peer.conduit}, frames)
}

func (s *Stream) sendTo(ctx context.Context, to route, frames [][]byte) error {
	size := bodiesSize(frames)
	if size == 0 {
		return s.closePeer(to)
	}
	l := s.settings.sendLimit()
	for {
		switch to.pipe.out.Offer(to.conn, nil, frames) {
		case queue.Accepted:
			s.total.queued(size)
			return nil
		case queue.Ended:
			if err := s.open(); err != nil {
				return err
			}
			return ErrUnroutable
		}
		if err := to.pipe.out.WaitRoom(ctx, to.conn, s.closing, &l); err != nil {
			return err
		}
	}
}

// closePeer closes a connection when the bytes queued for it have been written.
func (s *Stream) closePeer(to route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	p := to.pipe
	peer := p.peer.Load()
	if to.conn != nil && (peer == nil || &peer.conduit != to.conn) || p.leaving.Swap(true) {
		return ErrUnroutable
	}
	p.out.Seal()
	if d := p.dialer; d != nil {
		s.routes.remove(string(p.name), route{pipe: p})
		dropFrom(s.dialers, d.endpoint.Text, d)
		s.wg.Go(d.linger)
		return nil
	}
	s.routes.remove(string(peer.identity), route{p, &peer.conduit})
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.opts().longestLinger())
		defer cancel()
		p.finish(ctx)
		peer.conn.close(nil)
	})
	return nil
}

func (*Stream) traits() traits { return traits{maxMessage: maxMessage, raw: true} }

// added gives an identity to the peer of a Connect.
func (s *Stream) added(p *pipe) {
	s.routes.Lock()
	defer s.routes.Unlock()
	if p.name == nil {
		p.name = s.routes.generate()
	}
	s.routes.table[string(p.name)] = route{pipe: p}
}

func (s *Stream) removed(p *pipe) {
	if p.name != nil {
		s.routes.remove(string(p.name), route{pipe: p})
	}
}

func (s *Stream) attach(p *pipe, peer *Peer) error {
	if p.name != nil {
		peer.identity = p.name
	} else {
		s.routes.admit(p, peer) // a generated identity is not in use
	}
	if s.opts().Notify&NotifyConnect != 0 {
		s.in.Settled(&p.in, peer.conn.gone) // a notice of a former connection may still be queued
		s.notify(p, peer)
	}
	return nil
}

func (s *Stream) detach(p *pipe, peer *Peer) {
	if p.name == nil {
		s.routes.remove(string(peer.identity), route{p, &peer.conduit})
	}
	p.out.Part(&peer.conduit) // before the notice, so that no send can follow it
	if !p.leaving.Load() && s.opts().Notify&NotifyDisconnect != 0 {
		s.notify(p, peer)
	}
}

// messages drops messages from a peer whose connection the application has closed.
func (s *Stream) messages(p *pipe, _ *Peer, _ *Batch) (bool, error) { return !p.leaving.Load(), nil }

// notify makes the application receive an empty message from a peer.
func (s *Stream) notify(p *pipe, peer *Peer) {
	var n notices
	n.begin(len(emptyMessage))
	n.frame(nil)
	n.put(&s.in, &p.in, peer)
}

// sendable: the identity decides, and it is not known before the send call.
func (s *Stream) sendable() bool { return true }
