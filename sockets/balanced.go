package sockets

import (
	"context"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/internal/route"
	"clustermap/zmtp"
)

// balancing is the common part of the sockets that send to their peers in turn.
type balancing struct {
	balancer route.Balancer
	owner    *socket
}

// start initializes the socket s, of which b is a part. What p does not say is that each peer
// takes its turn.
func (b *balancing) start(s *socket, kind zmtp.SocketType, o Options, p engine.Pattern) error {
	b.owner = s
	lb := &b.balancer
	p.Keeps = true
	p.Roomy = func(*engine.Pipe) { lb.Roomy() }
	if p.Sendable == nil {
		p.Sendable = lb.HasRoom
	}
	if p.Added == nil {
		p.Added = lb.Added
	}
	if p.Removed == nil {
		p.Removed = lb.Remove
	}
	if p.Attach == nil {
		p.Attach = func(q *engine.Pipe, _ *engine.Peer) error {
			lb.Attached(q)
			return nil
		}
	}
	if p.Detach == nil {
		p.Detach = func(q *engine.Pipe, _ *engine.Peer) { lb.Detached(q) }
	}
	lb.Init(&s.core)
	s.changed = func(*Options) { lb.Adjust() }
	return s.init(kind, o, &p)
}

// balanced is the common part of PAIR, DEALER and PUSH.
type balanced struct{ balancing }

// start is like balancing.start.
func (b *balanced) start(s *socket, kind zmtp.SocketType, o Options, p engine.Pattern) error {
	p.Gathers = true
	return b.balancing.start(s, kind, o, p)
}

// Send sends a message of one or more frames to the next peer in turn whose
// queue has room; a PAIR has a single peer. It copies the frames. If no peer
// has room, or there is no peer, Send waits until the context is done or until
// Options.SendTimeout has passed (ErrTimeout). If it returns an error, the
// message was not sent.
func (b *balanced) Send(ctx context.Context, frames ...[]byte) error {
	if b.balancer.SendOnly(frames) {
		return nil
	}
	if err := b.owner.check(frames); err != nil {
		return err
	}
	return b.balancer.Send(ctx, frames)
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (b *balanced) TrySend(frames ...[]byte) error { return b.Send(queue.NoWait, frames...) }

// sendWire is hooks.SendWire.
func (b *balanced) sendWire(ctx context.Context, wire []byte, messages int, owner queue.Owner) error {
	return b.balancer.SendWire(ctx, wire, messages, owner)
}

// sendBatch is SendBatch of DEALER and PUSH.
func (b *balanced) sendBatch(ctx context.Context, bodies [][]byte) (int, error) {
	if err := b.owner.checkEach(bodies); err != nil {
		return 0, err
	}
	return b.balancer.SendBatch(ctx, bodies)
}
