package sockets

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"

	"clustermap/zmtp"
)

// Router is a ROUTER socket (RFC 28): it puts the sender's identity before
// each message it receives, and sends a message to the peer that its first
// frame names. A peer without an identity of its own gets a generated one, of
// five octets, the first of them zero.
//
// All methods are safe for concurrent use.
type Router struct {
	socket

	routes struct {
		sync.Mutex
		table map[string]*Peer
		next  uint32 // the next generated identity
	}
}

// NewRouter makes a ROUTER socket. It returns all faults of the options as one
// error.
func NewRouter(o Options) (*Router, error) {
	r := &Router{}
	if err := r.init(zmtp.ROUTER, o, (*routerPattern)(r)); err != nil {
		return nil, err
	}
	r.routes.table = map[string]*Peer{}
	r.routes.next = rand.Uint32()
	return r, nil
}

// Send sends frames[1:] to the peer whose identity is frames[0]. It copies the
// frames. If there is no such peer, or its queue is full, the message is
// dropped, without an error, as ZeroMQ has it; with Options.Mandatory Send
// returns ErrUnroutable, or waits for room.
func (r *Router) Send(ctx context.Context, frames ...[]byte) error {
	if err := r.check(frames); err != nil {
		return err
	}
	if len(frames) == 1 {
		return nil // an identity alone is no message
	}
	r.routes.Lock()
	peer := r.routes.table[string(frames[0])]
	r.routes.Unlock()
	if peer == nil {
		if r.opts.Mandatory {
			return ErrUnroutable
		}
		return r.open()
	}
	if r.opts.Mandatory {
		return r.SendTo(ctx, peer, frames[1:]...)
	}
	if peer.pipe.out.offer(frames[1:]) != accepted {
		peer.pipe.out.countDrops(1)
	}
	return r.open()
}

// SendTo sends frames to a peer, as Batch.Peer told it. It waits while the
// peer's queue is full, until the context ends, and returns ErrUnroutable once
// the peer has disconnected.
func (r *Router) SendTo(ctx context.Context, peer *Peer, frames ...[]byte) error {
	if err := r.check(frames); err != nil {
		return err
	}
	for peer.pipe.peer.Load() == peer {
		switch peer.pipe.out.offer(frames) {
		case accepted:
			return nil
		case isEnded:
			return r.gone()
		}
		if err := peer.pipe.out.waitRoom(ctx, r.closing); err != nil {
			return err
		}
	}
	return r.gone()
}

// SendWire sends messages that are in wire form already, and otherwise does as
// SendTo. Large runs are lent: the owner is retained until they are written,
// and until then the octets must not change. With a nil owner the octets are
// copied.
func (r *Router) SendWire(ctx context.Context, peer *Peer, wire []byte, messages int, owner Owner) error {
	for peer.pipe.peer.Load() == peer {
		switch peer.pipe.out.offerWire(wire, messages, owner) {
		case accepted:
			return nil
		case isEnded:
			return r.gone()
		}
		if err := peer.pipe.out.waitRoom(ctx, r.closing); err != nil {
			return err
		}
	}
	return r.gone()
}

// Recv waits for a message and returns it, its first frame the sender's
// identity. The caller owns it.
func (r *Router) Recv(ctx context.Context) (Message, error) { return r.in.recv(ctx) }

// RecvBatch waits for messages and lends those that one peer sent together:
// see [Batch]. The messages do not contain the identity; it is
// b.Peer().Identity().
func (r *Router) RecvBatch(ctx context.Context, b *Batch) error { return r.in.recvBatch(ctx, b) }

// gone is the error for a peer that has disconnected.
func (r *Router) gone() error {
	if err := r.open(); err != nil {
		return err
	}
	return ErrUnroutable
}

// routerPattern is Router as the engine sees it.
type routerPattern Router

func (r *routerPattern) added(*pipe)   {}
func (r *routerPattern) removed(*pipe) {}
func (r *routerPattern) keeps() bool   { return false }
func (r *routerPattern) roomy(*pipe)   {}

func (r *routerPattern) attach(p *pipe, peer *Peer) error {
	r.routes.Lock()
	defer r.routes.Unlock()
	id := peer.info.Identity
	if len(id) == 0 {
		id = r.generate()
	} else if r.routes.table[string(id)] != nil {
		return ErrIdentityInUse
	}
	peer.identity = slices.Clone(id)
	p.in.lead = peer.identity
	r.routes.table[string(id)] = peer
	return nil
}

// generate returns a free identity: a zero octet and a counter that starts at
// random, so that a restarted ROUTER does not reuse its last run's.
func (r *routerPattern) generate() []byte {
	for {
		id := binary.BigEndian.AppendUint32([]byte{0}, r.routes.next)
		r.routes.next++
		if r.routes.table[string(id)] == nil {
			return id
		}
	}
}

func (r *routerPattern) detach(_ *pipe, peer *Peer) {
	r.routes.Lock()
	defer r.routes.Unlock()
	if r.routes.table[string(peer.identity)] == peer {
		delete(r.routes.table, string(peer.identity))
	}
}

func (r *routerPattern) messages(p *pipe, peer *Peer, b *Batch) error { return p.deliver(peer, b) }

func (r *routerPattern) command(*pipe, *Peer, string, []byte) error { return nil }
