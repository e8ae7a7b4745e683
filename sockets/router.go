package sockets

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

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
		next  uint32        // the next generated identity
		freed chan struct{} // closed when an identity becomes free; nil while nobody waits
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
	r.in.named = true
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
	if peer.pipe.out.offer(peer, frames[1:]) != accepted {
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
	for {
		v := peer.pipe.out.offer(peer, frames)
		if v == accepted {
			return nil
		}
		if err := r.await(ctx, peer, v); err != nil {
			return err
		}
	}
}

// SendWire sends messages that are in wire form already, and otherwise does as
// SendTo. Large runs are lent: the owner is retained until they are written,
// and until then the octets must not change. With a nil owner the octets are
// copied.
func (r *Router) SendWire(ctx context.Context, peer *Peer, wire []byte, messages int, owner Owner) error {
	if err := r.open(); err != nil || len(wire) == 0 {
		return err
	}
	for {
		v := peer.pipe.out.offerWire(peer, wire, messages, owner)
		if v == accepted {
			return nil
		}
		if err := r.await(ctx, peer, v); err != nil {
			return err
		}
	}
}

// await waits for room after an offer that was not accepted.
func (r *Router) await(ctx context.Context, peer *Peer, v verdict) error {
	if v == isEnded {
		if err := r.open(); err != nil {
			return err
		}
		return ErrUnroutable
	}
	return peer.pipe.out.waitRoom(ctx, peer, r.closing)
}

// Recv waits for a message and returns it, its first frame the sender's
// identity. The caller owns it.
func (r *Router) Recv(ctx context.Context) (Message, error) { return r.in.recv(ctx) }

// RecvBatch waits for messages and lends those that one peer sent together:
// see [Batch]. The messages do not contain the identity; it is
// b.Peer().Identity().
func (r *Router) RecvBatch(ctx context.Context, b *Batch) error { return r.in.recvBatch(ctx, b) }

// routerPattern is Router as the engine sees it.
type routerPattern Router

func (r *routerPattern) added(*pipe)    {}
func (r *routerPattern) removed(*pipe)  {}
func (r *routerPattern) roomy(*pipe)    {}
func (r *routerPattern) traits() traits { return traits{maxMessage: maxMessage} }

// attach enters the peer's identity, or a generated one, in the table.
func (r *routerPattern) attach(_ *pipe, peer *Peer) error {
	r.routes.Lock()
	defer r.routes.Unlock()
	id := peer.info.Identity
	if len(id) == 0 {
		id = r.generate()
	} else if !r.free(id, peer.conn) {
		return ErrIdentityInUse
	}
	peer.identity = slices.Clone(id)
	r.routes.table[string(id)] = peer
	return nil
}

// identityGrace is how long a newcomer's identity may still be in use.
const identityGrace = 500 * time.Millisecond

// free waits until an identity is free, but only for a moment: a peer that
// lost its connection, or closed it, and came back at once can be here before
// the end of the old connection was noticed. It is called with the mutex held
// and returns so.
func (r *routerPattern) free(id []byte, c *conn) bool {
	if r.routes.table[string(id)] == nil {
		return true
	}
	timer := time.NewTimer(identityGrace)
	defer timer.Stop()
	for r.routes.table[string(id)] != nil {
		if r.routes.freed == nil {
			r.routes.freed = make(chan struct{})
		}
		freed, over := r.routes.freed, false
		r.routes.Unlock()
		select {
		case <-freed:
		case <-timer.C:
			over = true
		case <-c.gone:
			over = true
		}
		r.routes.Lock()
		if over {
			return r.routes.table[string(id)] == nil
		}
	}
	return true
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
	delete(r.routes.table, string(peer.identity))
	if r.routes.freed != nil {
		close(r.routes.freed)
		r.routes.freed = nil
	}
}

func (r *routerPattern) messages(*pipe, *Peer, *Batch) (bool, error) { return true, nil }

func (r *routerPattern) command(*pipe, *Peer, string, []byte) error { return nil }
