package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Push is a PUSH socket (RFC 30): it sends each message to the next of its
// peers in turn, waiting while none has room. It receives nothing.
//
// All methods are safe for concurrent use.
type Push struct {
	socket
	balancer balancer
}

// NewPush makes a PUSH socket. It returns all faults of the options as one
// error.
func NewPush(o Options) (*Push, error) {
	p := &Push{}
	if err := p.init(zmtp.PUSH, o, (*pushPattern)(p)); err != nil {
		return nil, err
	}
	p.balancer.init(&p.socket)
	return p, nil
}

// Send sends one message, of at least one frame. It copies the frames. It
// waits while there is no peer or every peer's queue is full, until the
// context ends or for Options.SendTimeout (ErrTimeout); the message is then not
// sent.
func (p *Push) Send(ctx context.Context, frames ...[]byte) error {
	if err := p.check(frames); err != nil {
		return err
	}
	return p.balancer.send(ctx, frames)
}

// TrySend is Send without waiting: if it would have to, it returns
// ErrWouldBlock.
func (p *Push) TrySend(frames ...[]byte) error { return p.Send(queue.NoWait, frames...) }

// SendBatch sends messages of one frame each, which it copies, and returns how
// many of them were sent: all, or fewer with the error that ended the wait for
// room, as with Send. The locks are taken once for many messages: with n peers
// each one gets an nth of the batch, in one run.
func (p *Push) SendBatch(ctx context.Context, bodies [][]byte) (int, error) {
	if err := p.checkEach(bodies); err != nil {
		return 0, err
	}
	return p.balancer.sendBatch(ctx, bodies)
}

// SendWire sends messages that are in wire form already, one behind the other,
// all to the next peer that has room. Large runs are lent: the owner is
// retained until they are written, and until then the bytes must not change.
// With a nil owner the bytes are copied. It waits as Send does.
func (p *Push) SendWire(ctx context.Context, wire []byte, messages int, owner Owner) error {
	return p.balancer.sendWire(ctx, wire, messages, owner)
}

// pushPattern is Push as the engine sees it.
type pushPattern Push

func (p *pushPattern) added(q *pipe)   { p.balancer.added(q) }
func (p *pushPattern) removed(q *pipe) { p.balancer.remove(q) }
func (p *pushPattern) roomy(*pipe)     { p.balancer.roomy() }
func (p *pushPattern) sendable() bool  { return p.balancer.hasRoom() }

func (p *pushPattern) traits() traits {
	return traits{keeps: !p.opts.Immediate, maxMessage: maxUnwanted}
}

// maxUnwanted bounds a message to a socket that receives none. It is thrown
// away, and need not be collected by the hundred megabytes before.
const maxUnwanted = 64 << 10

func (p *pushPattern) attach(q *pipe, _ *Peer) error {
	p.balancer.attached(q)
	return nil
}

func (p *pushPattern) detach(q *pipe, _ *Peer) { p.balancer.detached(q) }

// messages throws everything away: a PULL has nothing to say.
func (p *pushPattern) messages(_ *pipe, peer *Peer, b *Batch) (bool, error) {
	peer.discarded.Add(uint64(b.Len()))
	return false, nil
}

func (p *pushPattern) command(*pipe, *Peer, string, []byte) error { return nil }
