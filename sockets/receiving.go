package sockets

import (
	"context"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// receiving is the common part of the sockets that receive messages.
type receiving struct{ socket }

// Recv waits for a message and returns it. The caller owns the message. If the
// socket is a ROUTER, the first frame is the sender's identity. Recv waits
// until the context is done or until Options.RecvTimeout has passed
// (ErrTimeout).
func (r *receiving) Recv(ctx context.Context) (Message, error) {
	m, _, err := r.RecvFrom(ctx)
	return m, err
}

// TryRecv is like Recv but returns ErrWouldBlock instead of waiting.
func (r *receiving) TryRecv() (Message, error) { return r.Recv(queue.NoWait) }

// RecvBatch waits like Recv and fills b with messages of one connection,
// without copying them; see [Batch]. For a REQ or REP it is a single message. The
// messages of a ROUTER do not contain the sender's identity, which is
// b.Peer().Identity().
func (r *receiving) RecvBatch(ctx context.Context, b *Batch) error {
	err := r.core.TakeBatch(ctx, b.engine())
	if err == nil && r.taken != nil {
		r.taken(b.engine().Peer())
	}
	return err
}

// RecvFrom is like Recv but also returns the peer that sent the message, which
// remains valid after its connection has ended. The properties of a message in
// libzmq (zmq_msg_gets) are properties of the Peer here, because they are the same
// for all its messages.
func (r *receiving) RecvFrom(ctx context.Context) (Message, *Peer, error) {
	m, skip, err := r.core.Take(ctx)
	if err != nil {
		return nil, nil, err
	}
	peer := engine.PeerOf(m.From)
	var lead []byte
	if addressed(&r.core) {
		lead = peer.Identity()
	}
	owned := engine.Own(m.Wire()[skip:], lead)
	m.Chunk.Release()
	if r.taken != nil {
		r.taken(peer)
	}
	return owned, (*Peer)(peer), nil
}

// TryRecvFrom is like RecvFrom but returns ErrWouldBlock instead of waiting.
func (r *receiving) TryRecvFrom() (Message, *Peer, error) { return r.RecvFrom(queue.NoWait) }

// addressed reports whether received messages begin with the identity of the peer.
func addressed(s *engine.Socket) bool {
	return s.Kind() == zmtp.TypeRouter || s.Kind() == zmtp.TypeStream
}

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
