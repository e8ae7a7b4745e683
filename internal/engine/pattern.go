package engine

import (
	"time"

	"clustermap/internal/queue"
)

// Pattern is the part of a socket type behind the engine. The engine calls its functions from
// the connections' goroutines; nil ones do nothing. Calls of Attach and Detach for one pipe
// alternate.
type Pattern struct {
	Traits

	// Added is called when Connect has made a pipe, which has no connection
	// yet.
	Added func(p *Pipe)
	// Removed is called when a pipe is gone for good, after Detach.
	Removed func(p *Pipe)
	// Attach is called when a peer's handshake has succeeded. With an error,
	// the connection stays but the peer's messages are ignored; with a *Newcomer, only
	// until the peer is admitted.
	Attach func(p *Pipe, peer *Peer) error
	// Detach is called when the peer's connection has ended.
	Detach func(p *Pipe, peer *Peer)
	// Messages handles the messages of a peer and reports whether to queue b,
	// from which it may remove spans, for the application. An error ends the
	// connection after that. With inproc it is called by receive calls, so it
	// must not take a mutex that they hold. Nil queues all.
	Messages func(p *Pipe, peer *Peer, b *Batch) (wanted bool, err error)
	// Command handles a command that the engine does not answer itself.
	Command func(p *Pipe, peer *Peer, name string, data []byte) error
	// Roomy is called when a pipe that has refused a message would accept one
	// now.
	Roomy func(p *Pipe)
	// Choose returns the next message for the application without waiting, or
	// queue.ErrWouldBlock; its first skip bytes are not the application's. Nil takes
	// messages as they come.
	Choose func() (m queue.Single, skip int, err error)
	// prepare is that of package hooks; see SetPrepare.
	prepare func(*Batch)
	// pace is that of package hooks; see SetPace.
	pace func(*Batch) time.Duration
	// scan is that of package hooks; see SetScan.
	scan func(b []byte) (size int, tag uint64)
	// Receivable and Sendable report whether calls would not wait. Nil stands for a type
	// whose receive calls depend only on the inbox, and whose send calls never wait.
	Receivable, Sendable func() bool
}

// Traits are the properties in which a socket type differs from others.
type Traits struct {
	// Raw means that connections carry the bytes of messages without ZMTP.
	Raw bool
	// Keeps means that messages queued for a peer that has disconnected are
	// kept for the next connection of the same Connect.
	Keeps bool
	// Ordered means that messages and commands of a peer are handled in their
	// order. Otherwise a command may overtake the messages read with it.
	Ordered bool
	// Lockstep means that the two sides send in turn, so there is nothing to
	// gain by collecting messages.
	Lockstep bool
	// Gathers means that senders may exceed the high-water mark before a write. A
	// publisher that waits for all its peers would only exceed that of one.
	Gathers bool
	// Prompt means that a sender writes a message itself if the socket was idle, or Alone was
	// called.
	Prompt bool
	// Once means that Connect makes one connection to an endpoint, however often it is
	// called.
	Once bool
	// Withdraws means that over inproc the end of a connection drops messages that its
	// peer has not received.
	Withdraws bool
	// Notices is the queue of messages to the application about its peers, if
	// the socket has one for all peers, and nil otherwise.
	Notices *queue.Inqueue
	// Subscribed means that SUBSCRIBE and CANCEL commands are passed to
	// Messages in the form of messages (see subscriptionMessage).
	Subscribed bool
	// MaxMessage limits the size of a received message, in addition to
	// Config.MaxMessageSize; 0 for no limit of its own.
	MaxMessage int64
}

// complete has the functions that are nil do nothing.
func (t *Pattern) complete(s *Socket) {
	if t.Added == nil {
		t.Added = func(*Pipe) {}
	}
	if t.Removed == nil {
		t.Removed = func(*Pipe) {}
	}
	if t.Attach == nil {
		t.Attach = func(*Pipe, *Peer) error { return nil }
	}
	if t.Detach == nil {
		t.Detach = func(*Pipe, *Peer) {}
	}
	if t.Messages == nil {
		t.Messages = func(*Pipe, *Peer, *Batch) (bool, error) { return true, nil }
	}
	if t.Command == nil {
		t.Command = func(*Pipe, *Peer, string, []byte) error { return nil }
	}
	if t.Roomy == nil {
		t.Roomy = func(*Pipe) {}
	}
	if t.Receivable == nil {
		t.Receivable = s.In.Waiting
	}
	if t.Sendable == nil {
		t.Sendable = func() bool { return true }
	}
}
