package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// take takes the next message for the application out of the inbox, and waits for
// it. The first skip bytes of the message are not the application's.
//
// A REQ or REP chooses the message. It does so without waiting, because it holds a
// mutex that others need meanwhile.
func (s *socket) take(ctx context.Context) (m queue.Single, skip int, err error) {
	l := s.settings.recvLimit()
	if s.choose == nil {
		m, err = s.in.Take(ctx, &l)
		return m, 0, err
	}
	for {
		m, skip, err = s.choose()
		if err != ErrWouldBlock {
			return m, skip, err
		}
		if err = s.in.Wait(ctx, &l); err != nil {
			return m, 0, err
		}
	}
}

// addressed reports whether received messages begin with the identity of the peer.
func (s *socket) addressed() bool { return s.kind == zmtp.TypeRouter || s.kind == zmtp.TypeStream }

// recvFrom takes one message, copies it, and returns its sender.
func (s *socket) recvFrom(ctx context.Context) (Message, *Peer, error) {
	m, skip, err := s.take(ctx)
	if err != nil {
		return nil, nil, err
	}
	peer := peerOf(m.From)
	var lead []byte
	if s.addressed() {
		lead = peer.identity
	}
	owned := own(m.Wire()[skip:], lead)
	m.Chunk.Release()
	return owned, peer, nil
}

func (s *socket) recv(ctx context.Context) (Message, error) {
	m, _, err := s.recvFrom(ctx)
	return m, err
}

// recvBatch exchanges the contents of b for the next queued batch, or for the one
// message that the socket chooses.
func (s *socket) recvBatch(ctx context.Context, b *Batch) error {
	b.Release()
	if s.choose == nil {
		l := s.settings.recvLimit()
		return s.in.TakeBatch(ctx, &l, &b.q)
	}
	m, skip, err := s.take(ctx)
	if err == nil {
		m.Span.Start += uint32(skip)
		b.q.Chunk, b.q.Spans, b.q.From = m.Chunk, append(b.q.Spans, m.Span), m.From
	}
	return err
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
func (s *socket) Readable() <-chan struct{} { return s.in.Readable() }
