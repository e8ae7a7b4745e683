package sockets

import "context"

// RecvFrom of each type is Recv that also returns the sender. The properties of a
// message in libzmq (zmq_msg_gets) are properties of the Peer here, because they
// are the same for all its messages. A Peer remains valid after its connection
// has ended.

// RecvFrom is like Recv but also returns the peer that sent the message.
func (d *Dealer) RecvFrom(ctx context.Context) (Message, *Peer, error) { return d.in.recvFrom(ctx) }

// RecvFrom is like Recv but also returns the peer that sent the message.
func (r *Router) RecvFrom(ctx context.Context) (Message, *Peer, error) { return r.in.recvFrom(ctx) }

// RecvFrom is like Recv but also returns the peer that sent the message.
func (p *Pull) RecvFrom(ctx context.Context) (Message, *Peer, error) { return p.in.recvFrom(ctx) }

// RecvFrom is like Recv but also returns the peer that sent the message.
func (p *Pair) RecvFrom(ctx context.Context) (Message, *Peer, error) { return p.in.recvFrom(ctx) }

// RecvFrom is like Recv but also returns the publisher that sent the message.
func (s *subscribing) RecvFrom(ctx context.Context) (Message, *Peer, error) {
	return s.in.recvFrom(ctx)
}

// RecvFrom is like Recv but also returns the subscriber that sent the message.
func (x *XPub) RecvFrom(ctx context.Context) (Message, *Peer, error) {
	m, peer, err := x.in.recvFrom(ctx)
	if err == nil {
		x.received(peer)
	}
	return m, peer, err
}

// RecvFrom is like Recv but also returns the peer that sent the request.
func (r *Rep) RecvFrom(ctx context.Context) (Message, *Peer, error) { return r.in.recvNext(ctx, r) }

// RecvFrom is like Recv but also returns the peer that sent the reply.
func (r *Req) RecvFrom(ctx context.Context) (Message, *Peer, error) { return r.in.recvNext(ctx, r) }

// own copies a message without its first skip bytes, and releases the chunk.
func (m single) own(skip int) (Message, *Peer) {
	owned := own(m.wire()[skip:], nil)
	m.chunk.Release()
	return owned, m.peer
}
