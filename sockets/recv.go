package sockets

import (
	"context"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// addressed reports whether received messages begin with the identity of the peer.
func addressed(s *engine.Socket) bool {
	return s.Kind() == zmtp.TypeRouter || s.Kind() == zmtp.TypeStream
}

// recvFrom takes one message, copies it, and returns its sender.
func (s *socket) recvFrom(ctx context.Context) (Message, *Peer, error) {
	m, skip, err := s.core.Take(ctx)
	if err != nil {
		return nil, nil, err
	}
	peer := (*Peer)(engine.PeerOf(m.From))
	var lead []byte
	if addressed(&s.core) {
		lead = peer.Identity()
	}
	owned := engine.Own(m.Wire()[skip:], lead)
	m.Chunk.Release()
	return owned, peer, nil
}

func (s *socket) recv(ctx context.Context) (Message, error) {
	m, _, err := s.recvFrom(ctx)
	return m, err
}

func (s *socket) recvBatch(ctx context.Context, b *Batch) error {
	return s.core.TakeBatch(ctx, b.engine())
}

// RecvFrom is like Recv but also returns the subscriber that sent the message.
func (x *XPub) RecvFrom(ctx context.Context) (Message, *Peer, error) {
	m, peer, err := x.recvFrom(ctx)
	if err == nil {
		x.received(peer)
	}
	return m, peer, err
}

// TryRecvFrom is like RecvFrom but returns ErrWouldBlock instead of waiting.
func (x *XPub) TryRecvFrom() (Message, *Peer, error) { return x.RecvFrom(queue.NoWait) }

// Readable returns a channel that holds a value while the socket has messages
// to receive. It can be used in a select statement: after receiving a value,
// call a receive method once, usually TryRecv. If messages are left after that,
// the channel holds a value again. The channel is closed when the socket is
// closed.
//
// All calls return the same channel. It is meant for a single goroutine that
// receives from the socket; if other goroutines receive too, a value does not
// guarantee that a message is left. The channel of a socket that cannot receive
// never holds a value. Readable costs nothing until it is called; after that,
// each batch costs a channel operation. No goroutine is involved.
func (s *socket) Readable() <-chan struct{} { return s.core.In.Readable() }
