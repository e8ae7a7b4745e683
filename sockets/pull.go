package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Pull is a PULL socket (RFC 30). It receives messages from all its peers,
// fair-queued, and sends nothing.
//
// All methods are safe for concurrent use.
type Pull struct{ socket }

// NewPull returns a new PULL socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewPull(o Options) (*Pull, error) {
	p := &Pull{}
	if err := p.init(zmtp.PULL, o, pullPattern{}); err != nil {
		return nil, err
	}
	return p, nil
}

// Recv waits for a message and returns it. The caller owns the message. Recv
// waits until the context is done or until Options.RecvTimeout has passed
// (ErrTimeout).
func (p *Pull) Recv(ctx context.Context) (Message, error) { return p.in.recv(ctx) }

// TryRecv is like Recv but returns ErrWouldBlock instead of waiting.
func (p *Pull) TryRecv() (Message, error) { return p.in.recv(queue.NoWait) }

// RecvBatch waits like Recv and fills b with messages of one peer, without
// copying them; see [Batch].
func (p *Pull) RecvBatch(ctx context.Context, b *Batch) error { return p.in.recvBatch(ctx, b) }

// pullPattern implements pattern for Pull. The inbox does all the work.
type pullPattern struct{}

func (pullPattern) added(*pipe)                                 {}
func (pullPattern) removed(*pipe)                               {}
func (pullPattern) roomy(*pipe)                                 {}
func (pullPattern) traits() traits                              { return traits{maxMessage: maxMessage} }
func (pullPattern) attach(*pipe, *Peer) error                   { return nil }
func (pullPattern) detach(*pipe, *Peer)                         {}
func (pullPattern) messages(*pipe, *Peer, *Batch) (bool, error) { return true, nil }
func (pullPattern) command(*pipe, *Peer, string, []byte) error  { return nil }

// sendable reports false: a PULL has no send methods.
func (pullPattern) sendable() bool { return false }
