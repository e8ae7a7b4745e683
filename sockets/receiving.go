package sockets

import (
	"context"

	"clustermap/internal/queue"
)

// receiving is the common part of the sockets that receive messages.
type receiving struct{ socket }

// Recv waits for a message and returns it. The caller owns the message. If the
// socket is a ROUTER, the first frame is the sender's identity. Recv waits
// until the context is done or until Options.RecvTimeout has passed
// (ErrTimeout).
//
// Messages that come together share two allocations if they are small, so a message that
// is kept keeps up to 8 KiB of others. RecvInto allocates nothing.
func (r *receiving) Recv(ctx context.Context) (Message, error) {
	m, _, err := r.RecvFrom(ctx)
	return m, err
}

// TryRecv is like Recv but returns ErrWouldBlock instead of waiting.
func (r *receiving) TryRecv() (Message, error) { return r.Recv(queue.NoWait) }

// RecvInto is like Recv, but copies the message into m and reuses the memory of the frames
// that m has, so that it allocates nothing when they are large enough:
//
//	var m sockets.Message
//	for {
//		if err := pull.RecvInto(ctx, &m); err != nil {
//			return err
//		}
//		fmt.Printf("%s\n", m[0])
//	}
//
// The caller owns m before and after, and copies what it wants to keep of the previous message
// first. RecvInto may overwrite the bytes of every frame up to its capacity, also of those
// between the length and the capacity of m. So they must not share memory with each other or
// with anything that is in use, and must not be those of a [Batch] or of Messages, which are
// the socket's. Frames from Recv and RecvInto do not, unless the caller makes others of them.
// m keeps the memory of the largest frames that it has had.
//
// If m has no capacity, as the zero Message, it gets new memory like that of Recv. If RecvInto
// returns an error, m has not changed.
func (r *receiving) RecvInto(ctx context.Context, m *Message) error {
	got, _, err := r.recv(ctx, *m)
	if err == nil {
		*m = got
	}
	return err
}

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
	return r.recv(ctx, nil)
}

// recv is RecvFrom, and reuses the memory of m.
func (r *receiving) recv(ctx context.Context, m Message) (Message, *Peer, error) {
	m, peer, err := r.core.Recv(ctx, m)
	if err == nil && r.taken != nil {
		r.taken(peer)
	}
	return m, (*Peer)(peer), err
}

// TryRecvFrom is like RecvFrom but returns ErrWouldBlock instead of waiting.
func (r *receiving) TryRecvFrom() (Message, *Peer, error) { return r.RecvFrom(queue.NoWait) }

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
