package sockets

import (
	"context"

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
	d.balancer.init(d.closing)
	return d, nil
}

// Send sends one message, of at least one frame. It copies the frames. It
// waits while there is no peer or every peer's queue is full, until the
// context ends; the message is then not sent.
func (d *Dealer) Send(ctx context.Context, frames ...[]byte) error {
	if err := d.check(frames); err != nil {
		return err
	}
	return d.balancer.send(ctx, frames)
}

// Recv waits for a message and returns it. The caller owns it.
func (d *Dealer) Recv(ctx context.Context) (Message, error) { return d.in.recv(ctx) }

// RecvBatch waits for messages and lends those that one peer sent together:
// see [Batch].
func (d *Dealer) RecvBatch(ctx context.Context, b *Batch) error { return d.in.recvBatch(ctx, b) }

// dealerPattern is Dealer as the engine sees it.
type dealerPattern Dealer

func (d *dealerPattern) added(p *pipe)   { d.balancer.add(p) }
func (d *dealerPattern) removed(p *pipe) { d.balancer.remove(p) }
func (d *dealerPattern) roomy(*pipe)     { d.balancer.roomy() }
func (d *dealerPattern) traits() traits  { return traits{keeps: true, maxMessage: maxMessage} }

func (d *dealerPattern) attach(p *pipe, _ *Peer) error {
	if !p.lasting {
		d.balancer.add(p)
	}
	return nil
}

func (d *dealerPattern) detach(p *pipe, _ *Peer) {
	if !p.lasting {
		d.balancer.remove(p)
	}
}

func (d *dealerPattern) messages(*pipe, *Peer, *Batch) (bool, error) { return true, nil }

func (d *dealerPattern) command(*pipe, *Peer, string, []byte) error { return nil }
