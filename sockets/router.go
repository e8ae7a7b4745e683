package sockets

import (
	"context"
	"sync/atomic"

	"clustermap/internal/queue"
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
	defaults
	routes    routes
	mandatory atomic.Bool // Options.Mandatory
}

// NewRouter returns a new ROUTER socket. If options are invalid, the error
// joins an [*OptionError] for each of them.
func NewRouter(o Options) (*Router, error) {
	r := &Router{}
	r.routes.init()
	err := r.init(zmtp.TypeRouter, o, r)
	if err == nil {
		r.changed(nil, r.opts())
	}
	return made(r, err)
}

func (r *Router) changed(_, now *Options) {
	r.mandatory.Store(now.Mandatory)
	r.routes.Lock()
	r.routes.handover = now.Handover
	r.routes.Unlock()
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
	to := r.routes.find(frames[0])
	if to.pipe == nil {
		if r.mandatory.Load() {
			return ErrUnroutable
		}
		return r.open()
	}
	if r.mandatory.Load() {
		return r.sendTo(ctx, to, frames[1:])
	}
	if to.pipe.out.Offer(to.conn, nil, frames[1:]) != queue.Accepted {
		to.pipe.out.CountDrops(1)
	} else {
		r.total.queuedFrames(frames[1:])
	}
	return r.open()
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
	return r.sendTo(ctx, route{peer.pipe, &peer.conduit}, frames)
}

func (r *Router) sendTo(ctx context.Context, to route, frames [][]byte) error {
	l := r.settings.sendLimit()
	for {
		v := to.pipe.out.Offer(to.conn, nil, frames)
		if v == queue.Accepted {
			r.total.queuedFrames(frames)
			return nil
		}
		if err := r.await(ctx, to, v, &l); err != nil {
			return err
		}
	}
}

// SendWire is like SendTo for messages that are already encoded: wire holds the
// given number of complete messages in ZMTP 3 framing, one after another (see
// [zmtp.AppendMessage]).
//
// If owner is nil, SendWire copies wire. Otherwise it may keep a reference to
// it: it calls owner.Retain, the bytes must not change, and the socket calls
// owner.Release when it has written or dropped them. A short run is copied in
// any case.
//
// It is part of the advanced interface; see the package documentation.
func (r *Router) SendWire(ctx context.Context, peer *Peer, wire []byte, messages int, owner Owner) error {
	if err := r.open(); err != nil {
		return err
	}
	if !r.owns(peer) {
		return ErrForeignPeer
	}
	if len(wire) == 0 {
		return nil
	}
	l := r.settings.sendLimit()
	for {
		v := peer.pipe.out.OfferWire(&peer.conduit, wire, messages, owner)
		if v == queue.Accepted {
			r.total.queued(len(wire))
			return nil
		}
		if err := r.await(ctx, route{peer.pipe, &peer.conduit}, v, &l); err != nil {
			return err
		}
	}
}

// await waits for room after an offer that was not accepted.
func (r *Router) await(ctx context.Context, to route, v queue.Verdict, l *queue.Limit) error {
	if v == queue.Ended {
		if err := r.open(); err != nil {
			return err
		}
		return ErrUnroutable
	}
	return to.pipe.out.WaitRoom(ctx, to.conn, r.closing, l)
}

// TryRecvBatch is like RecvBatch but returns ErrWouldBlock, and leaves b empty,
// instead of waiting.
func (r *Router) TryRecvBatch(b *Batch) error { return r.recvBatch(queue.NoWait, b) }

// added enters the pipe that ConnectAs has made.
func (r *Router) added(p *pipe) {
	if p.name != nil {
		r.routes.enter(string(p.name), route{pipe: p})
	}
}

func (r *Router) removed(p *pipe) {
	if p.name != nil {
		r.routes.remove(string(p.name), route{pipe: p})
	}
}

func (r *Router) attach(p *pipe, peer *Peer) error {
	if p.name != nil {
		peer.identity = p.name
	} else if n := r.routes.admit(p, peer); n != nil {
		return n
	}
	r.welcome(p, peer)
	return nil
}

// welcome sends the first messages to an admitted peer and notifies the
// application.
func (r *Router) welcome(p *pipe, peer *Peer) {
	p.probe()
	if peer.conn.opts.Notify&NotifyConnect != 0 {
		r.in.Settled(&p.in, peer.conn.gone) // a notice of a former connection may still be queued
		r.notify(p, peer)
	}
}

func (r *Router) detach(p *pipe, peer *Peer) {
	gone := p.name != nil || r.routes.remove(string(peer.identity), route{p, &peer.conduit})
	p.out.Part(&peer.conduit) // before the notice, so that no send can follow it
	if gone && peer.conn.opts.Notify&NotifyDisconnect != 0 {
		r.notify(p, peer)
	}
}

// notify makes the application receive an empty message from a peer.
func (r *Router) notify(p *pipe, peer *Peer) {
	var n notices
	n.begin(len(emptyMessage))
	n.frame(nil)
	n.put(&r.in, &p.in, peer)
}
