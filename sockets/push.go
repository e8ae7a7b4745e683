package sockets

import (
	"context"

	"clustermap/internal/engine"
	"clustermap/zmtp"
)

// Push is a PUSH socket (RFC 30). It distributes messages among its peers in
// turn and receives nothing.
//
// If the connection to a peer ends, the messages queued for that peer are lost
// if it had connected to this socket (Bind). For an endpoint of Connect they
// are kept, and sent when the socket has connected again, unless
// Options.Immediate is set. Messages already passed to the operating system can be lost
// in either case.
//
// All methods are safe for concurrent use.
type Push struct {
	socket
	balanced
}

// NewPush returns a new PUSH socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewPush(o Options) (*Push, error) {
	p := &Push{}
	pattern := engine.Pattern{Messages: discard}
	pattern.MaxMessage = maxUnwanted
	return made(p, p.start(&p.socket, zmtp.TypePush, o, pattern))
}

// SendBatch sends each element of bodies as a message of one frame. It copies
// the bodies. It waits like Send and returns the number of messages sent, which
// is len(bodies) unless the error is not nil.
//
// SendBatch is more efficient than calling Send for each message. With n peers
// it sends about one n-th of the batch to each, as one run.
func (p *Push) SendBatch(ctx context.Context, bodies [][]byte) (int, error) {
	return p.sendBatch(ctx, bodies)
}

// discard discards everything: a PULL does not send.
func discard(_ *engine.Pipe, peer *engine.Peer, b *engine.Batch) (bool, error) {
	peer.Conn().Discarded.Add(uint64(b.Len()))
	return false, nil
}
