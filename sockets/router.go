package sockets

import (
	"cmp"
	"context"
	"sync/atomic"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/internal/route"
	"clustermap/zmtp"
)

// Router is a ROUTER socket (RFC 28). It receives messages, fair-queued, with
// the sender's identity as an additional first frame, and sends each message to
// the peer whose identity is the first frame. If a peer does not announce an
// identity, the socket generates one of five bytes, of which the first is zero.
// See also ConnectAs.
//
// All methods are safe for concurrent use.
type Router struct {
	receiving
	routes    route.Table
	mandatory atomic.Bool // Options.Mandatory
}

// NewRouter returns a new ROUTER socket. If options are invalid, the error
// joins an [*OptionError] for each of them.
func NewRouter(o Options) (*Router, error) {
	r := &Router{}
	r.routes.Init()
	r.routes.Admitted = r.welcome
	r.changed = func(now *Options) {
		r.mandatory.Store(now.Mandatory)
		r.routes.SetHandover(now.Handover)
	}
	return made(r, r.init(zmtp.TypeRouter, o, &engine.Pattern{
		Added: r.added, Removed: r.routes.Forget, Attach: r.attach, Detach: r.detach, Sendable: r.sendable,
		Traits: engine.Traits{Prompt: true},
	}))
}

// ConnectAs is like Connect, but the socket uses the given identity for the
// peer, even if the peer announces another one (ZMQ_CONNECT_ROUTING_ID). Messages can be
// sent to that identity immediately: they are queued until the connection is established,
// and those that were not written when a connection is lost are kept for the next one.
//
// An identity must have 1 to 255 bytes and must not begin with a zero byte;
// otherwise the error is an [*OptionError]. If another peer has the identity,
// the error is ErrIdentityInUse.
func (r *Router) ConnectAs(endpoint string, identity []byte) error {
	return r.connectAs(&r.routes, endpoint, identity)
}

// Send sends frames[1:] as a message to the peer whose identity is frames[0].
// It copies the frames. If there is no such peer, or its queue is full, the
// message is dropped without an error, as in libzmq.
//
// With Options.Mandatory, Send returns ErrUnroutable if there is no such peer.
// If the peer's queue is full, it waits until the context is done or until
// Options.SendTimeout has passed (ErrTimeout).
//
// If frames has only one element, Send does nothing.
func (r *Router) Send(ctx context.Context, frames ...[]byte) error {
	if err := r.check(frames); err != nil {
		return err
	}
	if len(frames) == 1 {
		return nil // an identity alone is no message
	}
	to := r.routes.Find(frames[0])
	if to.Pipe == nil {
		if r.mandatory.Load() {
			return ErrUnroutable
		}
		return nil
	}
	if r.mandatory.Load() {
		return r.sendTo(ctx, to, engine.BodiesSize(frames[1:]), frames[1:])
	}
	if to.Pipe.Out.Offer(to.Conn, nil, frames[1:]) != queue.Accepted {
		to.Pipe.Out.CountDrops(1)
	} else {
		r.core.Queued(engine.BodiesSize(frames[1:]))
	}
	return nil
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (r *Router) TrySend(frames ...[]byte) error { return r.Send(queue.NoWait, frames...) }

// SendTo sends a message of one or more frames to the given peer, such as the
// one returned by Batch.Peer or RecvFrom. It copies the frames. If the peer's
// queue is full, SendTo waits until the context is done or until
// Options.SendTimeout has passed (ErrTimeout). If the peer has disconnected,
// the error is ErrUnroutable. If it is nil or belongs to another socket, the
// error is ErrForeignPeer.
func (r *Router) SendTo(ctx context.Context, peer *Peer, frames ...[]byte) error {
	if err := r.check(frames); err != nil {
		return err
	}
	if !r.owns(peer) {
		return ErrForeignPeer
	}
	return r.sendTo(ctx, route.Of(peer.engine()), engine.BodiesSize(frames), frames)
}

// sendWire is hooks.SendWireTo.
func (r *Router) sendWire(ctx context.Context, peer *Peer, wire []byte, messages int, owner queue.Owner) error {
	if err := r.core.Open(); err != nil {
		return err
	}
	if !r.owns(peer) {
		return ErrForeignPeer
	}
	if len(wire) == 0 {
		return nil
	}
	to := route.Of(peer.engine())
	return r.offer(ctx, to, len(wire), func() queue.Verdict { return to.Pipe.Out.OfferWire(to.Conn, wire, messages, owner) })
}

// TryRecvBatch is like RecvBatch but returns ErrWouldBlock, and leaves b empty,
// instead of waiting.
func (r *Router) TryRecvBatch(b *Batch) error { return r.RecvBatch(queue.NoWait, b) }

// added enters the pipe that ConnectAs has made.
func (r *Router) added(p *engine.Pipe) {
	if p.Name != nil {
		r.routes.Name(p)
	}
}

func (r *Router) attach(p *engine.Pipe, peer *engine.Peer) error {
	if p.Name != nil {
		peer.SetIdentity(p.Name)
	} else if n := r.routes.Admit(p, peer); n != nil {
		return n
	}
	r.welcome(p, peer)
	return nil
}

// welcome sends the first messages to an admitted peer and notifies the
// application.
func (r *Router) welcome(p *engine.Pipe, peer *engine.Peer) {
	r.probe(p)
	if optionsOf(peer).Notify&NotifyConnect != 0 {
		r.core.In.Settled(&p.In, peer.Gone()) // a notice of a former connection may still be queued
		r.core.Notify(peer)
	}
}

func (r *Router) detach(p *engine.Pipe, peer *engine.Peer) {
	gone := p.Name != nil || r.routes.Remove(string(peer.Identity()), route.Of(peer))
	p.Out.Part(peer.Conn()) // before the notice, so that no send can follow it
	if gone && optionsOf(peer).Notify&NotifyDisconnect != 0 {
		r.core.Notify(peer)
	}
}

// sendable: a ROUTER drops messages that it cannot send, except with Mandatory,
// where at least one peer must have room.
func (r *Router) sendable() bool { return !r.mandatory.Load() || r.core.AnyRoom() }

// sendTo sends a message whose frames have size bytes.
func (s *socket) sendTo(ctx context.Context, to route.Route, size int, frames [][]byte) error {
	return s.offer(ctx, to, size, func() queue.Verdict { return to.Pipe.Out.Offer(to.Conn, nil, frames) })
}

// offer repeats an offer of size bytes to a peer until it is accepted, and waits for room.
func (s *socket) offer(ctx context.Context, to route.Route, size int, offer func() queue.Verdict) error {
	l := s.core.SendLimit()
	for {
		v := offer()
		if v == queue.Accepted {
			s.core.Queued(size)
			return nil
		}
		if err := s.await(ctx, to, v, &l); err != nil {
			return err
		}
	}
}

// await waits for room after an offer that was not accepted.
func (s *socket) await(ctx context.Context, to route.Route, v queue.Verdict, l *queue.Limit) error {
	if v == queue.Ended {
		return cmp.Or(s.core.Open(), ErrUnroutable)
	}
	return to.Pipe.Out.WaitRoom(ctx, to.Conn, s.core.Closing(), l)
}

// connectAs connects to an endpoint whose peer gets the given identity in the table.
func (s *socket) connectAs(t *route.Table, endpoint string, identity []byte) error {
	if err := checkIdentity("ConnectRoutingID", identity, 1); err != nil {
		return err
	}
	name := string(identity)
	if !t.Reserve(name) {
		return ErrIdentityInUse
	}
	err := s.core.Connect(endpoint, []byte(name))
	if err != nil {
		t.Remove(name, route.Route{})
	}
	return err
}

// probe sends the empty message of Options.ProbeRouter first on a connection
// that has just begun.
func (s *socket) probe(p *engine.Pipe) {
	if s.opts().ProbeRouter {
		p.Out.Precede(engine.EmptyMessage, 1)
	}
}
