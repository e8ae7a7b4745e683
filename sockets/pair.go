package sockets

import (
	"context"
	"sync"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Pair is a PAIR socket (RFC 31). It exchanges messages with a single peer. Its
// peer is the first one that connects to it, or the first endpoint that the
// socket connects to, whether or not that is reachable; with Options.Immediate
// it is the peer of the first established connection. The socket disconnects
// other peers after their handshake with ErrPaired; they may try again.
//
// All methods are safe for concurrent use.
type Pair struct {
	socket
	balancer balancer // of the single pipe

	mu   sync.Mutex
	pipe *pipe // to the peer; nil if there is none
}

// NewPair returns a new PAIR socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewPair(o Options) (*Pair, error) {
	p := &Pair{}
	if err := p.init(zmtp.PAIR, o, (*pairPattern)(p)); err != nil {
		return nil, err
	}
	p.balancer.init(&p.socket)
	return p, nil
}

// Send sends a message of one or more frames to the peer. It copies the frames.
// If the peer's queue is full, or there is no peer, Send waits until the
// context is done or until Options.SendTimeout has passed (ErrTimeout). If it
// returns an error, the message was not sent.
func (p *Pair) Send(ctx context.Context, frames ...[]byte) error {
	if p.balancer.sendOnly(frames) {
		return nil
	}
	if err := p.check(frames); err != nil {
		return err
	}
	return p.balancer.send(ctx, frames)
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (p *Pair) TrySend(frames ...[]byte) error { return p.Send(queue.NoWait, frames...) }

// SendWire sends messages that are already encoded: wire holds the given number
// of complete messages in ZMTP 3 framing, one after another (see
// [zmtp.AppendMessage]). SendWire waits like Send.
//
// If owner is nil, SendWire copies wire. Otherwise it may keep a reference to
// it: it calls owner.Retain, the bytes must not change, and the socket calls
// owner.Release when it has written or dropped them. A short run is copied in
// any case.
func (p *Pair) SendWire(ctx context.Context, wire []byte, messages int, owner Owner) error {
	return p.balancer.sendWire(ctx, wire, messages, owner)
}

// Recv waits for a message and returns it. The caller owns the message. Recv
// waits until the context is done or until Options.RecvTimeout has passed
// (ErrTimeout).
func (p *Pair) Recv(ctx context.Context) (Message, error) { return p.in.recv(ctx) }

// TryRecv is like Recv but returns ErrWouldBlock instead of waiting.
func (p *Pair) TryRecv() (Message, error) { return p.in.recv(queue.NoWait) }

// RecvBatch waits like Recv and fills b with messages of one connection,
// without copying them; see [Batch].
func (p *Pair) RecvBatch(ctx context.Context, b *Batch) error { return p.in.recvBatch(ctx, b) }

// pairPattern implements pattern for Pair.
type pairPattern Pair

// take makes q the single pipe if there is none yet, and reports whether q is
// the single pipe.
func (p *pairPattern) take(q *pipe) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pipe == nil {
		p.pipe = q
		p.balancer.add(q)
	}
	return p.pipe == q
}

// leave allows another peer if q is the single pipe.
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
