package sockets

import "context"

// RecvFrom of each type is its Recv, and tells besides whose message it is: what
// libzmq has as properties of a message (zmq_msg_gets) are properties of the
// peer here, the same for all of its messages. A Peer stays readable after its
// connection has ended.

// RecvFrom is Recv, and returns the sender too.
func (d *Dealer) RecvFrom(ctx context.Context) (Message, *Peer, error) { return d.in.recvFrom(ctx) }

// RecvFrom is Recv, the identity in front included, and returns the sender too.
func (r *Router) RecvFrom(ctx context.Context) (Message, *Peer, error) { return r.in.recvFrom(ctx) }

// RecvFrom is Recv, and returns the sender too.
func (p *Pull) RecvFrom(ctx context.Context) (Message, *Peer, error) { return p.in.recvFrom(ctx) }

// RecvFrom is Recv, and returns the sender too: with a peer that may change,
// which of them it was.
func (p *Pair) RecvFrom(ctx context.Context) (Message, *Peer, error) { return p.in.recvFrom(ctx) }

// RecvFrom is Recv, and returns the publisher too.
func (s *subscribing) RecvFrom(ctx context.Context) (Message, *Peer, error) {
	return s.in.recvFrom(ctx)
}

// RecvFrom is Recv, and returns the subscriber too.
func (x *XPub) RecvFrom(ctx context.Context) (Message, *Peer, error) {
	m, peer, err := x.in.recvFrom(ctx)
	if err == nil {
		x.received(peer)
	}
	return m, peer, err
}

// RecvFrom is Recv, and returns who asks too.
func (r *Rep) RecvFrom(ctx context.Context) (Message, *Peer, error) { return r.in.recvNext(ctx, r) }

// RecvFrom is Recv, and returns who replied too.
func (r *Req) RecvFrom(ctx context.Context) (Message, *Peer, error) { return r.in.recvNext(ctx, r) }

// own copies a message taken singly, without its first bytes, and gives its
// chunk back.
func (m single) own(skip int) (Message, *Peer) {
	owned := own(m.wire()[skip:], nil)
	m.chunk.Release()
	return owned, m.peer
}
