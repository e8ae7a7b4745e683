package sockets

import (
	"context"

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
	socket
	routes routes
	total  total
}

// NewRouter returns a new ROUTER socket. If options are invalid, the error
// joins an [*OptionError] for each of them.
func NewRouter(o Options) (*Router, error) {
	r := &Router{}
	r.total.init(o.SendTotalBytes)
	if err := r.init(zmtp.ROUTER, o, (*routerPattern)(r)); err != nil {
		return nil, err
	}
	r.routes.init(r.opts.Handover)
	r.in.named = true
	return r, nil
}

// ConnectAs is like Connect, but the socket uses the given identity for the
// peer, whatever identity the peer announces (ZMQ_CONNECT_ROUTING_ID). Messages
// can be sent to that identity immediately: they are queued until the
// connection is established, and those that were not written when a connection
// is lost are kept for the next one.
//
// An identity must have 1 to 255 bytes and must not begin with a zero byte;
// otherwise the error is an [*OptionError]. If another peer has the identity,
// the error is ErrIdentityInUse.
func (r *Router) ConnectAs(endpoint string, identity []byte) error {
	if err := checkIdentity("ConnectRoutingID", identity, 1); err != nil {
		return err
	}
	name := string(identity)
	if !r.routes.reserve(name) {
		return ErrIdentityInUse
	}
	err := r.connect(endpoint, []byte(name))
	if err != nil {
		r.routes.remove(name, route{})
	}
	return err
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
		if r.opts.Mandatory {
			return ErrUnroutable
		}
		return r.open()
	}
	if r.opts.Mandatory {
		return r.sendTo(ctx, to, frames[1:])
	}
	if to.pipe.out.offer(to.peer, nil, frames[1:]) != accepted {
		to.pipe.out.countDrops(1)
	} else {
		r.queuedFrames(frames[1:])
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
	return r.sendTo(ctx, route{peer.pipe, peer}, frames)
}

func (r *Router) sendTo(ctx context.Context, to route, frames [][]byte) error {
	l := queue.Limit{Patience: r.opts.SendTimeout}
	for {
		v := to.pipe.out.offer(to.peer, nil, frames)
		if v == accepted {
			r.queuedFrames(frames)
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
	l := queue.Limit{Patience: r.opts.SendTimeout}
	for {
		v := peer.pipe.out.offerWire(peer, wire, messages, owner)
		if v == accepted {
			r.queued(len(wire))
			return nil
		}
		if err := r.await(ctx, route{peer.pipe, peer}, v, &l); err != nil {
			return err
		}
	}
}

// await waits for room after an offer that was not accepted.
func (r *Router) await(ctx context.Context, to route, v verdict, l *queue.Limit) error {
	if v == isEnded {
		if err := r.open(); err != nil {
			return err
		}
		return ErrUnroutable
	}
	return to.pipe.out.waitRoom(ctx, to.peer, r.closing, l)
}

// Recv waits for a message and returns it, with the sender's identity as the
// first frame. The caller owns the message. Recv waits until the context is
// done or until Options.RecvTimeout has passed (ErrTimeout).
func (r *Router) Recv(ctx context.Context) (Message, error) { return r.in.recv(ctx) }

// TryRecv is like Recv but returns ErrWouldBlock instead of waiting.
func (r *Router) TryRecv() (Message, error) { return r.in.recv(queue.NoWait) }

// RecvBatch waits like Recv and fills b with messages of one peer, without
// copying them; see [Batch]. The messages do not contain the sender's identity,
// which is b.Peer().Identity().
func (r *Router) RecvBatch(ctx context.Context, b *Batch) error { return r.in.recvBatch(ctx, b) }

// TryRecvBatch is like RecvBatch but returns ErrWouldBlock, and leaves b empty,
// instead of waiting.
func (r *Router) TryRecvBatch(b *Batch) error { return r.in.recvBatch(queue.NoWait, b) }

// routerPattern implements pattern for Router.
type routerPattern Router

func (r *routerPattern) roomy(*pipe)    {}
func (r *routerPattern) traits() traits { return traits{maxMessage: maxMessage} }

// added enters the pipe that ConnectAs has made.
func (r *routerPattern) added(p *pipe) {
	if p.name != nil {
		r.routes.enter(string(p.name), route{pipe: p})
	}
}

func (r *routerPattern) removed(p *pipe) {
	if p.name != nil {
		r.routes.remove(string(p.name), route{pipe: p})
	}
}

func (r *routerPattern) attach(p *pipe, peer *Peer) error {
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
func (r *routerPattern) welcome(p *pipe, peer *Peer) {
	p.probe()
	if r.opts.Notify&NotifyConnect != 0 {
		r.in.settle(&p.in, peer.conn.gone) // a notice of a former connection may still be queued
		r.notify(p, peer)
	}
}

func (r *routerPattern) detach(p *pipe, peer *Peer) {
	gone := p.name != nil || r.routes.remove(string(peer.identity), route{p, peer})
	if gone && r.opts.Notify&NotifyDisconnect != 0 {
		r.notify(p, peer)
	}
}

// notify makes the application receive an empty message from a peer.
func (r *routerPattern) notify(p *pipe, peer *Peer) {
	var n notices
	n.begin(len(emptyMessage))
	n.frame(nil)
	n.put(&r.in, &p.in, peer)
}

func (r *routerPattern) messages(*pipe, *Peer, *Batch) (bool, error) { return true, nil }

func (r *routerPattern) command(*pipe, *Peer, string, []byte) error { return nil }
