package sockets

import (
	"strings"
	"sync/atomic"

	"clustermap/internal/link"
	"clustermap/internal/queue"
)

// hwm is a number of messages and their bytes.
type hwm = queue.HWM

// pipe is the pair of queues between a socket and one peer. The pipe of a
// connecting socket exists from Connect on and outlives connections. The pipe
// of an accepting socket lives as long as its connection.
type pipe struct {
	socket    *socket
	endpoint  string
	lasting   bool    // made by Connect
	immediate bool    // takes messages only while it is connected; see Options.Immediate
	dialer    *dialer // dials for it, if made by Connect
	place     uint64  // orders the pipes by when they were accepted or Connect was called
	name      []byte  // the identity that ConnectAs, or a STREAM, has assigned to its peer

	leaving atomic.Bool // a STREAM's application has closed the connection

	out queue.Outbox
	in  queue.Inqueue

	peer atomic.Pointer[Peer] // the established connection, or nil
}

func newPipe(s *socket, endpoint string, lasting bool) *pipe {
	o := s.opts()
	p := &pipe{socket: s, endpoint: endpoint, lasting: lasting, immediate: o.Immediate, place: s.places.Add(1)}
	p.out.Init(s.sendLimits(o), s.conflates())
	p.in.Init(!p.inproc()) // over inproc a Connect does not wait for the application
	return p
}

// conflates reports whether the socket keeps only the last message of each queue.
func (s *socket) conflates() bool { return s.opts().Conflate }

// hasRoom reports whether the pipe would accept a message. If not, it will
// signal when it does.
func (p *pipe) hasRoom() bool { return p.out.Would() == queue.Accepted }

// pattern is the part of a socket type behind the engine. The engine calls it from the
// connections' goroutines. Calls of attach and detach for one pipe alternate.
type pattern interface {
	// added is called when Connect has made a pipe, which has no connection
	// yet.
	added(p *pipe)
	// removed is called when a pipe is gone for good, after detach.
	removed(p *pipe)
	// attach is called when a peer's handshake has succeeded. With an error,
	// the connection stays but the peer's messages are ignored; with a *newcomer, only
	// until the peer is admitted.
	attach(p *pipe, peer *Peer) error
	// detach is called when the peer's connection has ended.
	detach(p *pipe, peer *Peer)
	// messages handles the messages of a peer and reports whether to queue b,
	// from which it may remove spans, for the application. An error ends the
	// connection after that. With inproc it is called by receive calls, so it
	// must not take a mutex that they hold.
	messages(p *pipe, peer *Peer, b *Batch) (wanted bool, err error)
	// command handles a command that the engine does not answer itself.
	command(p *pipe, peer *Peer, name string, data []byte) error
	// roomy is called when a pipe that has refused a message would accept one
	// now.
	roomy(p *pipe)
	// changed is called when the options have changed, with no lock held.
	changed(was, now *Options)
	// traits returns the properties in which the socket type differs from others. All
	// calls return the same.
	traits() traits
}

// traits of a socket type.
type traits struct {
	// raw means that connections carry the bytes of messages without ZMTP.
	raw bool
	// keeps means that messages queued for a peer that has disconnected are
	// kept for the next connection of the same Connect.
	keeps bool
	// ordered means that messages and commands of a peer are handled in their
	// order. Otherwise a command may overtake the messages read with it.
	ordered bool
	// lockstep means that the two sides send in turn, so there is nothing to
	// gain by collecting messages.
	lockstep bool
	// gathers means that senders may exceed the high-water mark before a write. A
	// publisher that waits for all its peers would only exceed that of one.
	gathers bool
	// prompt means that a sender writes the first message after a lull itself.
	prompt bool
	// notices is the queue of messages to the application about its peers, if
	// the socket has one for all peers, and nil otherwise.
	notices *queue.Inqueue
	// subscribed means that SUBSCRIBE and CANCEL commands are passed to
	// messages in the form of messages (see subscriptionMessage).
	subscribed bool
	// maxMessage limits the size of a received message, in addition to
	// Options.MaxMessageSize.
	maxMessage int64
}

// inproc reports whether the pipe leads to a socket of the same process.
func (p *pipe) inproc() bool { return strings.HasPrefix(p.endpoint, link.Inproc+"://") }
