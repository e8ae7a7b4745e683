package sockets

import (
	"context"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Router is a ROUTER socket (RFC 28): it puts the sender's identity before
// each message it receives, and sends a message to the peer that its first
// frame names. A peer without an identity of its own gets a generated one, of
// five bytes, the first of them zero; see also ConnectAs.
//
// All methods are safe for concurrent use.
type Router struct {
	socket
	routes routes
}

// NewRouter makes a ROUTER socket. It returns all faults of the options as one
// error.
func NewRouter(o Options) (*Router, error) {
	r := &Router{}
	if err := r.init(zmtp.ROUTER, o, (*routerPattern)(r)); err != nil {
		return nil, err
	}
	r.routes.init(r.opts.Handover)
	r.in.named = true
	return r, nil
}

// ConnectAs is Connect to a peer that is to be known here by the given identity,
// whatever it says of itself (ZMQ_CONNECT_ROUTING_ID). So messages can be sent
// to it at once: they wait for the connection, and those that were not written
// when a connection was lost wait for the next one. An identity has 1 to 255
// bytes, the first of them not zero (else an *OptionError). ErrIdentityInUse
// means that another peer has it.
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

// Send sends frames[1:] to the peer whose identity is frames[0]. It copies the
// frames. If there is no such peer, or its queue is full, the message is
// dropped, without an error, as ZeroMQ has it. With Options.Mandatory it is
// not: Send returns ErrUnroutable if there is no such peer, and waits for room
// in its queue, until the context ends or for Options.SendTimeout (ErrTimeout).
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
	if to.pipe.out.offer(to.peer, frames[1:]) != accepted {
		to.pipe.out.countDrops(1)
	}
	return r.open()
}

// TrySend is Send without waiting: if it would have to, it returns
// ErrWouldBlock.
func (r *Router) TrySend(frames ...[]byte) error { return r.Send(queue.NoWait, frames...) }

// SendTo sends frames to a peer, as Batch.Peer told it. It waits while the
// peer's queue is full, until the context ends or for Options.SendTimeout
// (ErrTimeout), and returns ErrUnroutable once the peer has disconnected. A peer
// that is nil or belongs to another socket is refused with ErrForeignPeer.
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
		v := to.pipe.out.offer(to.peer, frames)
		if v == accepted {
			return nil
		}
		if err := r.await(ctx, to, v, &l); err != nil {
			return err
		}
	}
}

// SendWire sends messages that are in wire form already, and otherwise does as
// SendTo. Large runs are lent: the owner is retained until they are written,
// and until then the bytes must not change. With a nil owner the bytes are
// copied.
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
	return to.pipe.out.waitRoomWithin(ctx, to.peer, r.closing, l)
}

// Recv waits for a message, until the context ends or for Options.RecvTimeout
// (ErrTimeout), and returns it, its first frame the sender's identity. The
// caller owns it.
func (r *Router) Recv(ctx context.Context) (Message, error) { return r.in.recv(ctx) }

// TryRecv is Recv without waiting: if there is no message, it returns
// ErrWouldBlock.
func (r *Router) TryRecv() (Message, error) { return r.in.recv(queue.NoWait) }

// RecvBatch waits as Recv does, and lends the messages that one peer sent
// together: see [Batch]. The messages do not contain the identity; it is
// b.Peer().Identity().
func (r *Router) RecvBatch(ctx context.Context, b *Batch) error { return r.in.recvBatch(ctx, b) }

// TryRecvBatch is RecvBatch without waiting: if there is no message, it returns
// ErrWouldBlock, and b is empty.
func (r *Router) TryRecvBatch(b *Batch) error { return r.in.recvBatch(queue.NoWait, b) }

// routerPattern is Router as the engine sees it.
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

// welcome sends what an admitted peer gets first, and tells the application of it.
func (r *routerPattern) welcome(p *pipe, peer *Peer) {
	p.probe()
	if r.opts.Notify&NotifyConnect != 0 {
		r.in.settle(&p.in, peer.conn.gone) // an unfetched notice of a former connection
		r.notify(p, peer)
	}
}

func (r *routerPattern) detach(p *pipe, peer *Peer) {
	gone := p.name != nil || r.routes.remove(string(peer.identity), route{p, peer})
	if gone && r.opts.Notify&NotifyDisconnect != 0 {
		r.notify(p, peer)
	}
}

// notify has the application receive an empty message of a peer.
func (r *routerPattern) notify(p *pipe, peer *Peer) {
	var n notices
	n.begin(len(emptyMessage))
	n.frame(nil)
	n.put(&r.in, &p.in, peer)
}

func (r *routerPattern) messages(*pipe, *Peer, *Batch) (bool, error) { return true, nil }

func (r *routerPattern) command(*pipe, *Peer, string, []byte) error { return nil }
