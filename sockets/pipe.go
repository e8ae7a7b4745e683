package sockets

import "sync/atomic"

// pipe is the pair of queues between a socket and one peer. A connecting
// socket's pipe exists from Connect on and outlives connections; an accepting
// socket's pipe lives as long as its connection.
type pipe struct {
	socket   *socket
	endpoint string
	lasting  bool // made by Connect

	out outbox
	in  inqueue

	peer atomic.Pointer[Peer] // the established connection, or nil

	// sub belongs to the publisher that the pipe is attached to, guarded by
	// its mutex.
	sub subscriber
}

func newPipe(s *socket, endpoint string, lasting bool) *pipe {
	p := &pipe{socket: s, endpoint: endpoint, lasting: lasting}
	p.out.init(hwm{s.opts.SendHWM, s.opts.SendHWMOctets})
	p.in.init()
	return p
}

// pattern is what a socket type adds to the engine. The engine calls it from
// the connections' goroutines; attach and detach of one pipe alternate.
type pattern interface {
	// added says that Connect made a pipe, which has no connection yet.
	added(p *pipe)
	// removed says that a pipe is gone for good, after detach.
	removed(p *pipe)
	// attach says that a peer's handshake has succeeded. An error refuses
	// what the peer sends, but keeps the connection (see ErrIdentityInUse).
	attach(p *pipe, peer *Peer) error
	// detach says that the peer's connection has ended.
	detach(p *pipe, peer *Peer)
	// messages takes what a peer sent, and may leave b as it is. It waits
	// while the application does not keep up. An error ends the connection.
	messages(p *pipe, peer *Peer, b *Batch) error
	// command takes a SUBSCRIBE, a CANCEL, or another command that the engine
	// does not answer itself.
	command(p *pipe, peer *Peer, name string, data []byte) error
	// roomy says that a pipe which refused a message would take one now.
	roomy(p *pipe)
	// traits says in what the socket type differs from others. It is the same
	// at every call.
	traits() traits
}

// traits of a socket type.
type traits struct {
	// keeps: messages queued for a peer that disconnected are kept for the
	// next connection of the same Connect.
	keeps bool
	// ordered: what a peer sends is taken in its order, messages and commands;
	// elsewhere a command may overtake the messages it was read with.
	ordered bool
	// maxMessage bounds what a peer may send, besides Options.MaxMessageSize.
	maxMessage int64
}

// deliver queues a batch for the application's receive calls.
func (p *pipe) deliver(peer *Peer, b *Batch) error {
	if p.socket.opts.Prepare != nil {
		p.socket.opts.Prepare(b)
	}
	if len(b.spans) == 0 {
		return nil
	}
	b.fit()
	if !p.socket.in.push(&p.in, b, peer.conn.gone) {
		// The connection is gone, which the reader will see; or the socket
		// closes and only lingers to write, and what still comes in is thrown
		// away.
		peer.discarded.Add(uint64(len(b.spans)))
	}
	return nil
}
