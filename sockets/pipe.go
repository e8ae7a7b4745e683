package sockets

import (
	"strings"
	"sync/atomic"
)

// pipe is the pair of queues between a socket and one peer. A connecting
// socket's pipe exists from Connect on and outlives connections; an accepting
// socket's pipe lives as long as its connection.
type pipe struct {
	socket   *socket
	endpoint string
	lasting  bool    // made by Connect
	dialer   *dialer // that dials for it, if made by Connect
	place    uint64  // orders the pipes as they were accepted or Connect was called
	name     []byte  // the identity that ConnectAs gave its peer

	out outbox
	in  inqueue

	peer atomic.Pointer[Peer] // the established connection, or nil

	// sub belongs to the publisher that the pipe is attached to, guarded by
	// its mutex.
	sub subscriber
}

func newPipe(s *socket, endpoint string, lasting bool) *pipe {
	p := &pipe{socket: s, endpoint: endpoint, lasting: lasting, place: s.places.Add(1)}
	p.out.init(hwm{s.opts.SendHWM, s.opts.SendHWMBytes})
	p.in.init()
	if s.conflates() {
		p.out.conflate, p.out.limits = true, hwm{unbounded, unbounded}
	}
	return p
}

// hasRoom says that the pipe would take a message, and has it tell when it
// does, if not.
func (p *pipe) hasRoom() bool {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return p.out.admit(nil) == accepted
}

// pattern is what a socket type adds to the engine. The engine calls it from
// the connections' goroutines; attach and detach of one pipe alternate.
type pattern interface {
	// added says that Connect made a pipe, which has no connection yet.
	added(p *pipe)
	// removed says that a pipe is gone for good, after detach.
	removed(p *pipe)
	// attach says that a peer's handshake has succeeded. An error refuses
	// what the peer sends, but keeps the connection. With a *newcomer that is so
	// only until the peer is admitted.
	attach(p *pipe, peer *Peer) error
	// detach says that the peer's connection has ended.
	detach(p *pipe, peer *Peer)
	// messages looks at what a peer sent, and reports whether b, from which it
	// may take spans, is to be queued for the application. An error ends the
	// connection, when that is done. With inproc it is called by whoever
	// receives, so it must not take a mutex that is held then.
	messages(p *pipe, peer *Peer, b *Batch) (wanted bool, err error)
	// command takes a command that the engine does not answer itself.
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
	// lockstep: who has sent waits for an answer, and who was asked gives it.
	// There is nothing to gain by collecting messages.
	lockstep bool
	// notices is the queue of messages to the application about its peers, if the
	// socket has one for all peers; else nil.
	notices *inqueue
	// subscribed: SUBSCRIBE and CANCEL commands come to messages, in the form
	// of messages (see subscriptionMessage).
	subscribed bool
	// maxMessage bounds what a peer may send, besides Options.MaxMessageSize.
	maxMessage int64
}

// inproc says that the pipe leads to a socket of the same process.
func (p *pipe) inproc() bool { return strings.HasPrefix(p.endpoint, transportInproc+"://") }
