package sockets

import (
	"context"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Dealer is a DEALER socket (RFC 28). It distributes the messages that it sends
// among its peers in turn, and receives messages from all of them, fair-queued.
// It adds and removes no frames.
//
// If the connection to a peer ends, the messages queued for that peer are lost
// if it had connected to this socket (Bind). For an endpoint of Connect they
// are kept, and sent when the socket has connected again, unless
// Options.Immediate is set. Messages already passed to the operating system can be lost
// in either case.
//
// All methods are safe for concurrent use.
type Dealer struct {
	receiving
	balanced
}

// NewDealer returns a new DEALER socket. If options are invalid, the error
// joins an [*OptionError] for each of them.
func NewDealer(o Options) (*Dealer, error) { return newDealer(o, false) }

// newDealer is NewDealer, with engine.Traits.Withdraws.
func newDealer(o Options, withdraws bool) (*Dealer, error) {
	d := &Dealer{}
	p := engine.Pattern{Attach: d.attach}
	p.Once, p.Withdraws = true, withdraws
	return made(d, d.start(&d.socket, zmtp.TypeDealer, o, p))
}

// SendBatch sends each element of bodies as a message of one frame. It copies
// the bodies. It waits like Send and returns the number of messages sent, which
// is len(bodies) unless the error is not nil.
//
// SendBatch is more efficient than calling Send for each message. With n peers
// it sends about one n-th of the batch to each, as one run.
func (d *Dealer) SendBatch(ctx context.Context, bodies [][]byte) (int, error) {
	return d.sendBatch(ctx, bodies)
}

// TryRecvBatch is like RecvBatch but returns ErrWouldBlock, and leaves b empty,
// instead of waiting.
func (d *Dealer) TryRecvBatch(b *Batch) error { return d.RecvBatch(queue.NoWait, b) }

func (d *Dealer) attach(p *engine.Pipe, _ *engine.Peer) error {
	d.probe(p)
	d.balancer.Attached(p)
	return nil
}
