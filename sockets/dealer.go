package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Dealer is a DEALER socket (RFC 28). It distributes the messages that it sends
// among its peers in turn, and receives messages from all of them, fair-queued.
// It adds and removes no frames.
//
// All methods are safe for concurrent use.
type Dealer struct {
	socket
	balancer balancer
}

// NewDealer returns a new DEALER socket. If options are invalid, the error
// joins an [*OptionError] for each of them.
func NewDealer(o Options) (*Dealer, error) {
	d := &Dealer{}
	if err := d.init(zmtp.DEALER, o, (*dealerPattern)(d)); err != nil {
		return nil, err
	}
	d.balancer.init(&d.socket)
	return d, nil
}

// Send sends a message of one or more frames to the next peer in turn whose
// queue has room. It copies the frames. If no peer has room, or there is no
// peer, Send waits until the context is done or until Options.SendTimeout has
// passed (ErrTimeout). If it returns an error, the message was not sent.
func (d *Dealer) Send(ctx context.Context, frames ...[]byte) error {
	if d.balancer.sendOnly(frames) {
		return nil
	}
	if err := d.check(frames); err != nil {
		return err
	}
	return d.balancer.send(ctx, frames)
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (d *Dealer) TrySend(frames ...[]byte) error { return d.Send(queue.NoWait, frames...) }

// SendBatch sends each element of bodies as a message of one frame. It copies
// the bodies. It waits like Send and returns the number of messages sent, which
// is len(bodies) unless the error is not nil.
//
// SendBatch is more efficient than calling Send for each message. With n peers
// it sends about one n-th of the batch to each, as one run.
func (d *Dealer) SendBatch(ctx context.Context, bodies [][]byte) (int, error) {
	if err := d.checkEach(bodies); err != nil {
		return 0, err
	}
	return d.balancer.sendBatch(ctx, bodies)
}

// SendWire sends messages that are already encoded: wire holds the given number
// of complete messages in ZMTP 3 framing, one after another (see
// [zmtp.AppendMessage]). They all go to the next peer in turn whose queue has
// room. SendWire waits like Send.
//
// If owner is nil, SendWire copies wire. Otherwise it may keep a reference to
// it: it calls owner.Retain, the bytes must not change, and the socket calls
// owner.Release when it has written or dropped them. A short run is copied in
// any case.
func (d *Dealer) SendWire(ctx context.Context, wire []byte, messages int, owner Owner) error {
	return d.balancer.sendWire(ctx, wire, messages, owner)
}

// Recv waits for a message and returns it. The caller owns the message. Recv
// waits until the context is done or until Options.RecvTimeout has passed
// (ErrTimeout).
func (d *Dealer) Recv(ctx context.Context) (Message, error) { return d.in.recv(ctx) }

// TryRecv is like Recv but returns ErrWouldBlock instead of waiting.
func (d *Dealer) TryRecv() (Message, error) { return d.in.recv(queue.NoWait) }

// RecvBatch waits like Recv and fills b with messages of one peer, without
// copying them; see [Batch].
func (d *Dealer) RecvBatch(ctx context.Context, b *Batch) error { return d.in.recvBatch(ctx, b) }

// TryRecvBatch is like RecvBatch but returns ErrWouldBlock, and leaves b empty,
// instead of waiting.
func (d *Dealer) TryRecvBatch(b *Batch) error { return d.in.recvBatch(queue.NoWait, b) }

// dealerPattern implements pattern for Dealer.
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
