package sockets

import (
	"context"
	"sync"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Pair is a PAIR socket (RFC 31): it talks to one peer, and to no other while
// that one is there. The first peer that connects is it, or the first endpoint
// that the socket connects to, be it reachable or not; with Options.Immediate,
// whichever connection comes up first. Others are disconnected once they have
// greeted (ErrPaired), and may try again.
//
// All methods are safe for concurrent use.
type Pair struct {
	socket
	balancer balancer // of the one pipe

	mu   sync.Mutex
	pipe *pipe // the peer's, nil while there is none
}

// NewPair makes a PAIR socket. It returns all faults of the options as one
// error.
func NewPair(o Options) (*Pair, error) {
	p := &Pair{}
	if err := p.init(zmtp.PAIR, o, (*pairPattern)(p)); err != nil {
		return nil, err
	}
	p.balancer.init(&p.socket)
	return p, nil
}

// Send sends one message, of at least one frame. It copies the frames. It
// waits while there is no peer or its queue is full, until the context ends or
// for Options.SendTimeout (ErrTimeout); the message is then not sent.
func (p *Pair) Send(ctx context.Context, frames ...[]byte) error {
	if err := p.check(frames); err != nil {
		return err
	}
	return p.balancer.send(ctx, frames)
}

// TrySend is Send without waiting: if it would have to, it returns
// ErrWouldBlock.
func (p *Pair) TrySend(frames ...[]byte) error { return p.Send(queue.NoWait, frames...) }

// SendWire sends messages that are in wire form already, one behind the other.
// Large runs are lent: the owner is retained until they are written, and until
// then the bytes must not change. With a nil owner the bytes are copied. It
// waits as Send does.
func (p *Pair) SendWire(ctx context.Context, wire []byte, messages int, owner Owner) error {
	return p.balancer.sendWire(ctx, wire, messages, owner)
}

// Recv waits for a message, until the context ends or for Options.RecvTimeout
// (ErrTimeout), and returns it. The caller owns it.
func (p *Pair) Recv(ctx context.Context) (Message, error) { return p.in.recv(ctx) }

// TryRecv is Recv without waiting: if there is no message, it returns
// ErrWouldBlock.
func (p *Pair) TryRecv() (Message, error) { return p.in.recv(queue.NoWait) }

// RecvBatch waits as Recv does, and lends the messages that were sent together:
// see [Batch].
func (p *Pair) RecvBatch(ctx context.Context, b *Batch) error { return p.in.recvBatch(ctx, b) }

// pairPattern is Pair as the engine sees it.
type pairPattern Pair

// take makes q the one pipe, if there is none.
func (p *pairPattern) take(q *pipe) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pipe == nil {
		p.pipe = q
		p.balancer.add(q)
	}
	return p.pipe == q
}

// leave lets others have their turn, if q is the one pipe.
func (p *pairPattern) leave(q *pipe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pipe == q {
		p.pipe = nil
		p.balancer.remove(q)
	}
}

func (p *pairPattern) added(q *pipe) {
	if !p.opts.Immediate {
		p.take(q)
	}
}

func (p *pairPattern) removed(q *pipe) { p.leave(q) }
func (p *pairPattern) roomy(*pipe)     { p.balancer.roomy() }
func (p *pairPattern) sendable() bool  { return p.balancer.hasRoom() }

func (p *pairPattern) traits() traits {
	return traits{keeps: !p.opts.Immediate, maxMessage: maxMessage}
}

func (p *pairPattern) attach(q *pipe, peer *Peer) error {
	if !p.take(q) {
		peer.Disconnect(ErrPaired)
		return ErrPaired
	}
	return nil
}

func (p *pairPattern) detach(q *pipe, _ *Peer) {
	if !q.lasting || p.opts.Immediate {
		p.leave(q)
	}
}

func (p *pairPattern) messages(*pipe, *Peer, *Batch) (bool, error) { return true, nil }

func (p *pairPattern) command(*pipe, *Peer, string, []byte) error { return nil }
