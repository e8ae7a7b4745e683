package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Push is a PUSH socket (RFC 30). It distributes messages among its peers in
// turn and receives nothing.
//
// All methods are safe for concurrent use.
type Push struct {
	socket
	balancer balancer
}

// NewPush returns a new PUSH socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewPush(o Options) (*Push, error) {
	p := &Push{}
	if err := p.init(zmtp.PUSH, o, (*pushPattern)(p)); err != nil {
		return nil, err
	}
	p.balancer.init(&p.socket)
	return p, nil
}

// Send sends a message of one or more frames to the next peer in turn whose
// queue has room. It copies the frames. If no peer has room, or there is no
// peer, Send waits until the context is done or until Options.SendTimeout has
// passed (ErrTimeout). If it returns an error, the message was not sent.
func (p *Push) Send(ctx context.Context, frames ...[]byte) error {
	if p.balancer.sendOnly(frames) {
		return nil
	}
	if err := p.check(frames); err != nil {
		return err
	}
	return p.balancer.send(ctx, frames)
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (p *Push) TrySend(frames ...[]byte) error { return p.Send(queue.NoWait, frames...) }

// SendBatch sends each element of bodies as a message of one frame. It copies
// the bodies. It waits like Send and returns the number of messages sent, which
// is len(bodies) unless the error is not nil.
//
// SendBatch is more efficient than calling Send for each message. With n peers
// it sends about one n-th of the batch to each, as one run.
func (p *Push) SendBatch(ctx context.Context, bodies [][]byte) (int, error) {
	if err := p.checkEach(bodies); err != nil {
		return 0, err
	}
	return p.balancer.sendBatch(ctx, bodies)
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
func (p *Push) SendWire(ctx context.Context, wire []byte, messages int, owner Owner) error {
	return p.balancer.sendWire(ctx, wire, messages, owner)
}

// pushPattern implements pattern for Push.
type pushPattern Push

func (p *pushPattern) added(q *pipe)   { p.balancer.added(q) }
func (p *pushPattern) removed(q *pipe) { p.balancer.remove(q) }
func (p *pushPattern) roomy(*pipe)     { p.balancer.roomy() }
func (p *pushPattern) sendable() bool  { return p.balancer.hasRoom() }

func (p *pushPattern) traits() traits {
	return traits{keeps: !p.opts.Immediate, maxMessage: maxUnwanted}
}

// maxUnwanted limits the size of a message to a socket that receives none. The
// message is discarded, so there is no point in collecting a large one first.
const maxUnwanted = 64 << 10

func (p *pushPattern) attach(q *pipe, _ *Peer) error {
	p.balancer.attached(q)
	return nil
}

func (p *pushPattern) detach(q *pipe, _ *Peer) { p.balancer.detached(q) }

// messages discards everything: a PULL does not send.
func (p *pushPattern) messages(_ *pipe, peer *Peer, b *Batch) (bool, error) {
	peer.discarded.Add(uint64(b.Len()))
	return false, nil
}

func (p *pushPattern) command(*pipe, *Peer, string, []byte) error { return nil }
