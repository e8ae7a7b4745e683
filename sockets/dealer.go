package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Dealer is a DEALER socket (RFC 28): it sends each message to the next of its
// peers in turn, waiting while none has room, and receives from all of them
// fairly. Frames go out and come in as they are.
//
// All methods are safe for concurrent use.
type Dealer struct {
	socket
	balancer balancer
}

// NewDealer makes a DEALER socket. It returns all faults of the options as one
// error.
func NewDealer(o Options) (*Dealer, error) {
	d := &Dealer{}
	if err := d.init(zmtp.DEALER, o, (*dealerPattern)(d)); err != nil {
		return nil, err
	}
	d.balancer.init(&d.socket)
	return d, nil
}

// Send sends one message, of at least one frame. It copies the frames. It
// waits while there is no peer or every peer's queue is full, until the
// context ends or for Options.SendTimeout (ErrTimeout); the message is then not
// sent.
func (d *Dealer) Send(ctx context.Context, frames ...[]byte) error {
	if err := d.check(frames); err != nil {
		return err
	}
	return d.balancer.send(ctx, frames)
}

// TrySend is Send without waiting: if it would have to, it returns
// ErrWouldBlock.
func (d *Dealer) TrySend(frames ...[]byte) error { return d.Send(queue.NoWait, frames...) }

// SendBatch sends messages of one frame each, which it copies, and returns how
// many of them were sent: all, or fewer with the error that ended the wait for
// room, as with Send. The locks are taken once for many messages: with n peers
// each one gets an nth of the batch, in one run.
func (d *Dealer) SendBatch(ctx context.Context, bodies [][]byte) (int, error) {
	if err := d.checkEach(bodies); err != nil {
		return 0, err
	}
	return d.balancer.sendBatch(ctx, bodies)
}

// SendWire sends messages that are in wire form already, one behind the other,
// all to the next peer that has room. Large runs are lent: the owner is
// retained until they are written, and until then the bytes must not change.
// With a nil owner the bytes are copied. It waits as Send does.
func (d *Dealer) SendWire(ctx context.Context, wire []byte, messages int, owner Owner) error {
	return d.balancer.sendWire(ctx, wire, messages, owner)
}

// Recv waits for a message, until the context ends or for Options.RecvTimeout
// (ErrTimeout), and returns it. The caller owns it.
func (d *Dealer) Recv(ctx context.Context) (Message, error) { return d.in.recv(ctx) }

// TryRecv is Recv without waiting: if there is no message, it returns
// ErrWouldBlock.
func (d *Dealer) TryRecv() (Message, error) { return d.in.recv(queue.NoWait) }

// RecvBatch waits as Recv does, and lends the messages that one peer sent
// together: see [Batch].
func (d *Dealer) RecvBatch(ctx context.Context, b *Batch) error { return d.in.recvBatch(ctx, b) }

// TryRecvBatch is RecvBatch without waiting: if there is no message, it returns
// ErrWouldBlock, and b is empty.
func (d *Dealer) TryRecvBatch(b *Batch) error { return d.in.recvBatch(queue.NoWait, b) }

// dealerPattern is Dealer as the engine sees it.
type dealerPattern Dealer

func (d *dealerPattern) added(p *pipe)   { d.balancer.added(p) }
func (d *dealerPattern) removed(p *pipe) { d.balancer.remove(p) }
func (d *dealerPattern) roomy(*pipe)     { d.balancer.roomy() }

func (d *dealerPattern) traits() traits {
	return traits{keeps: !d.opts.Immediate, maxMessage: maxMessage}
}

func (d *dealerPattern) attach(p *pipe, _ *Peer) error {
	p.probe()
	d.balancer.attached(p)
	return nil
}

func (d *dealerPattern) detach(p *pipe, _ *Peer) { d.balancer.detached(p) }

func (d *dealerPattern) messages(*pipe, *Peer, *Batch) (bool, error) { return true, nil }

func (d *dealerPattern) command(*pipe, *Peer, string, []byte) error { return nil }
