package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// balancing is the common part of the sockets that send to their peers in turn.
// It implements pattern.
type balancing struct {
	defaults
	balancer balancer
}

// start initializes the socket s, of which b is a part and p is the pattern.
func (b *balancing) start(s *socket, kind zmtp.SocketType, o Options, p pattern) error {
	err := s.init(kind, o, p)
	b.balancer.init(s)
	return err
}

func (b *balancing) added(p *pipe)   { b.balancer.added(p) }
func (b *balancing) removed(p *pipe) { b.balancer.remove(p) }
func (b *balancing) roomy(*pipe)     { b.balancer.roomy() }
func (b *balancing) sendable() bool  { return b.balancer.hasRoom() }

func (b *balancing) changed(_, _ *Options) { b.balancer.adjust() }

func (b *balancing) attach(p *pipe, _ *Peer) error {
	b.balancer.attached(p)
	return nil
}

func (b *balancing) detach(p *pipe, _ *Peer) { b.balancer.detached(p) }

func (b *balancing) traits() traits {
	return traits{keeps: true, gathers: true, maxMessage: maxMessage}
}

// balanced is the common part of PAIR, DEALER and PUSH.
type balanced struct {
	balancing
	owner *socket
}

// start is like balancing.start.
func (b *balanced) start(s *socket, kind zmtp.SocketType, o Options, p pattern) error {
	b.owner = s
	return b.balancing.start(s, kind, o, p)
}

// Send sends a message of one or more frames to the next peer in turn whose
// queue has room; a PAIR has a single peer. It copies the frames. If no peer
// has room, or there is no peer, Send waits until the context is done or until
// Options.SendTimeout has passed (ErrTimeout). If it returns an error, the
// message was not sent.
func (b *balanced) Send(ctx context.Context, frames ...[]byte) error {
	if b.balancer.sendOnly(frames) {
		return nil
	}
	if err := b.owner.check(frames); err != nil {
		return err
	}
	return b.balancer.send(ctx, frames)
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (b *balanced) TrySend(frames ...[]byte) error { return b.Send(queue.NoWait, frames...) }

// SendWire sends messages that are already encoded: wire holds the given number
// of complete messages in ZMTP 3 framing, one after another (see
// [zmtp.AppendMessage]). They all go to the next peer in turn whose queue has
// room. SendWire waits like Send.
//
// If owner is nil, SendWire copies wire. Otherwise it may keep a reference to
// it: it calls owner.Retain, the bytes must not change, and the socket calls
// owner.Release when it has written or dropped them. A short run is copied in
// any case.
//
// It is part of the advanced interface; see the package documentation.
func (b *balanced) SendWire(ctx context.Context, wire []byte, messages int, owner Owner) error {
	return b.balancer.sendWire(ctx, wire, messages, owner)
}

// sendBatch is SendBatch of DEALER and PUSH.
func (b *balanced) sendBatch(ctx context.Context, bodies [][]byte) (int, error) {
	if err := b.owner.checkEach(bodies); err != nil {
		return 0, err
	}
	return b.balancer.sendBatch(ctx, bodies)
}
