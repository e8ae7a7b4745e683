package sockets

import (
	"context"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/internal/route"
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
	routes route.Table
}

// NewStream returns a new STREAM socket. If options are invalid, the error joins
// an [*OptionError] for each of them. Options that need ZMTP, such as Security and
// HeartbeatInterval, do not apply.
func NewStream(o Options) (*Stream, error) {
	s := &Stream{}
	s.routes.Init()
	p := engine.Pattern{Added: s.routes.Name, Removed: s.routes.Forget, Attach: s.attach, Detach: s.detach, Messages: s.messages}
	p.Raw = true
	return made(s, s.init(zmtp.TypeStream, o, &p))
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
	to := s.routes.Find(frames[0])
	if to.Pipe == nil {
		return ErrUnroutable
	}
	return s.sendBytes(ctx, to, frames[1:])
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
	return s.sendBytes(ctx, route.Of(peer.engine()), frames)
}

func (s *Stream) sendBytes(ctx context.Context, to route.Route, frames [][]byte) error {
	size := engine.BodiesSize(frames)
	if size == 0 {
		return s.closePeer(to)
	}
	return s.sendTo(ctx, to, size, frames)
}

// closePeer closes a connection when the bytes queued for it have been written.
func (s *Stream) closePeer(to route.Route) error {
	found, err := s.core.ClosePeer(to.Pipe, to.Conn, func(peer *engine.Peer) {
		if p := to.Pipe; p.Lasting {
			s.routes.Forget(p)
		} else {
			s.routes.Remove(string(peer.Identity()), route.Of(peer))
		}
	})
	if err == nil && !found {
		return ErrUnroutable
	}
	return err
}

func (s *Stream) attach(p *engine.Pipe, peer *engine.Peer) error {
	if p.Name != nil {
		peer.SetIdentity(p.Name)
	} else {
		s.routes.Admit(p, peer) // a generated identity is not in use
	}
	if s.opts().Notify&NotifyConnect != 0 {
		s.core.In.Settled(&p.In, peer.Gone()) // a notice of a former connection may still be queued
		s.core.Notify(peer)
	}
	return nil
}

func (s *Stream) detach(p *engine.Pipe, peer *engine.Peer) {
	if p.Name == nil {
		s.routes.Remove(string(peer.Identity()), route.Of(peer))
	}
	p.Out.Part(peer.Conn()) // before the notice, so that no send can follow it
	if !p.Leaving() && s.opts().Notify&NotifyDisconnect != 0 {
		s.core.Notify(peer)
	}
}

// messages drops what arrives after the application has closed the connection.
func (s *Stream) messages(p *engine.Pipe, _ *engine.Peer, _ *engine.Batch) (bool, error) {
	return !p.Leaving(), nil
}
