package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Pull is a PULL socket (RFC 30): it receives from all its peers fairly. It
// sends nothing.
//
// All methods are safe for concurrent use.
type Pull struct{ socket }

// NewPull makes a PULL socket. It returns all faults of the options as one
// error.
func NewPull(o Options) (*Pull, error) {
	p := &Pull{}
	if err := p.init(zmtp.PULL, o, pullPattern{}); err != nil {
		return nil, err
	}
	return p, nil
}

// Recv waits for a message, until the context ends or for Options.RecvTimeout
// (ErrTimeout), and returns it. The caller owns it.
func (p *Pull) Recv(ctx context.Context) (Message, error) { return p.in.recv(ctx) }

// TryRecv is Recv without waiting: if there is no message, it returns
// ErrWouldBlock.
func (p *Pull) TryRecv() (Message, error) { return p.in.recv(queue.NoWait) }

// RecvBatch waits as Recv does, and lends the messages that one peer sent
// together: see [Batch].
func (p *Pull) RecvBatch(ctx context.Context, b *Batch) error { return p.in.recvBatch(ctx, b) }

// pullPattern is Pull as the engine sees it. The inbox does all that there is
// to do.
type pullPattern struct{}

func (pullPattern) added(*pipe)                                 {}
func (pullPattern) removed(*pipe)                               {}
func (pullPattern) roomy(*pipe)                                 {}
func (pullPattern) traits() traits                              { return traits{maxMessage: maxMessage} }
func (pullPattern) attach(*pipe, *Peer) error                   { return nil }
func (pullPattern) detach(*pipe, *Peer)                         {}
func (pullPattern) messages(*pipe, *Peer, *Batch) (bool, error) { return true, nil }
func (pullPattern) command(*pipe, *Peer, string, []byte) error  { return nil }

// sendable: there is no send call.
func (pullPattern) sendable() bool { return false }
