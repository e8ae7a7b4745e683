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
func (r *receiving) Recv(ctx context.Context) (Message, error) { return r.recv(ctx) }

// TryRecv is like Recv but returns ErrWouldBlock instead of waiting.
func (r *receiving) TryRecv() (Message, error) { return r.recv(queue.NoWait) }

// RecvBatch waits like Recv and fills b with messages of one connection,
// without copying them; see [Batch]. For a REQ or REP it is a single message. The
// messages of a ROUTER do not contain the sender's identity, which is
// b.Peer().Identity().
func (r *receiving) RecvBatch(ctx context.Context, b *Batch) error { return r.recvBatch(ctx, b) }

// RecvFrom is like Recv but also returns the peer that sent the message, which
// remains valid after its connection has ended. The properties of a message in
// libzmq (zmq_msg_gets) are properties of the Peer here, because they are the same
// for all its messages.
func (r *receiving) RecvFrom(ctx context.Context) (Message, *Peer, error) { return r.recvFrom(ctx) }

// TryRecvFrom is like RecvFrom but returns ErrWouldBlock instead of waiting.
func (r *receiving) TryRecvFrom() (Message, *Peer, error) { return r.recvFrom(queue.NoWait) }
