package sockets

import "context"

// Sender is the interface of the sockets that can send: all types but SUB and
// PULL. A function that takes a Sender works with any of them, and can be
// tested without a socket.
//
// For a ROUTER the first frame is the identity of the peer. A PUB or XPUB
// matches the first frame against the subscriptions.
type Sender interface {
	// Send sends a message of one or more frames. It copies the parts of the frames that
	// it keeps. If the socket type waits when it cannot send, Send waits until the
	// context is done or until Options.SendTimeout has passed (ErrTimeout).
	Send(ctx context.Context, frames ...[]byte) error
	// TrySend is like Send but returns ErrWouldBlock instead of waiting.
	TrySend(frames ...[]byte) error
}

// Receiver is the interface of the sockets that can receive: all types but PUB
// and PUSH.
type Receiver interface {
	// Recv waits for a message and returns it. The caller owns the message. It
	// waits until the context is done or until Options.RecvTimeout has passed
	// (ErrTimeout).
	Recv(ctx context.Context) (Message, error)
	// TryRecv is like Recv but returns ErrWouldBlock instead of waiting.
	TryRecv() (Message, error)
	// RecvFrom is like Recv and also returns the peer that sent the message.
	RecvFrom(ctx context.Context) (Message, *Peer, error)
	// RecvBatch waits like Recv and fills b with messages of one peer, without
	// copying them.
	RecvBatch(ctx context.Context, b *Batch) error
}

// The interfaces that each type implements besides Socket.
var (
	_ Sender = (*Dealer)(nil)
	_ Sender = (*Pair)(nil)
	_ Sender = (*Pub)(nil)
	_ Sender = (*Push)(nil)
	_ Sender = (*Rep)(nil)
	_ Sender = (*Req)(nil)
	_ Sender = (*Router)(nil)
	_ Sender = (*Stream)(nil)
	_ Sender = (*XPub)(nil)
	_ Sender = (*XSub)(nil)

	_ Receiver = (*Dealer)(nil)
	_ Receiver = (*Pair)(nil)
	_ Receiver = (*Pull)(nil)
	_ Receiver = (*Rep)(nil)
	_ Receiver = (*Req)(nil)
	_ Receiver = (*Router)(nil)
	_ Receiver = (*Stream)(nil)
	_ Receiver = (*Sub)(nil)
	_ Receiver = (*XPub)(nil)
	_ Receiver = (*XSub)(nil)
)
