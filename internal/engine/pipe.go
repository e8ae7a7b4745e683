package engine

import (
	"strings"
	"sync/atomic"

	"clustermap/internal/link"
	"clustermap/internal/queue"
)

// Pipe is the pair of queues between a socket and one peer. The pipe of a
// connecting socket exists from Connect on and outlives connections. The pipe
// of an accepting socket lives as long as its connection.
type Pipe struct {
	socket *Socket
	dialer *dialer // dials for it, if made by Connect

	// These do not change once the pattern knows the pipe.
	Endpoint  string
	Lasting   bool   // made by Connect
	Immediate bool   // takes messages only while it is connected; see Config.Immediate
	Place     uint64 // orders the pipes by when they were accepted or Connect was called
	Name      []byte // the identity that ConnectAs, or a STREAM, has assigned to its peer

	linked  bool        // there was a connection; guarded by totals.mu
	leaving atomic.Bool // the application of a STREAM has closed the connection

	Out queue.Outbox
	In  queue.Inqueue

	peer atomic.Pointer[Peer] // the established connection, or nil
}

// NewPipe returns a pipe of a socket. It is lasting if Connect has made it.
func NewPipe(s *Socket, endpoint string, lasting bool) *Pipe {
	o := s.Config()
	p := &Pipe{socket: s, Endpoint: endpoint, Lasting: lasting, Immediate: o.Immediate, Place: s.places.Add(1)}
	p.Out.Init(o.Send, o.Conflate)
	p.In.Init(!p.Inproc()) // over inproc a Connect does not wait for the application
	return p
}

// Socket returns the socket of the pipe.
func (p *Pipe) Socket() *Socket { return p.socket }

// Peer returns the established connection, or nil if there is none.
func (p *Pipe) Peer() *Peer { return p.peer.Load() }

// Transient reports whether the pipe takes messages only while it is connected.
func (p *Pipe) Transient() bool { return !p.Lasting || p.Immediate }

// HasRoom reports whether the pipe would accept a message. If not, it will
// signal when it does.
func (p *Pipe) HasRoom() bool { return p.Out.Would() == queue.Accepted }

// Inproc reports whether the pipe leads to a socket of the same process.
func (p *Pipe) Inproc() bool { return strings.HasPrefix(p.Endpoint, link.Inproc+"://") }

// Leaving reports whether ClosePeer was called.
func (p *Pipe) Leaving() bool { return p.leaving.Load() }

// ClosePeer ends a connection when the messages queued for it have been written, and stops
// connecting to its endpoint. forget is called before that, with a lock held. It returns
// false if there is no such connection: of the given token, or with nil any. The error is
// queue.ErrClosed.
func (s *Socket) ClosePeer(p *Pipe, conn *queue.Conn, forget func(peer *Peer)) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, queue.ErrClosed
	}
	peer := p.peer.Load()
	if conn != nil && (peer == nil || &peer.conduit != conn) || p.leaving.Swap(true) {
		return false, nil
	}
	p.Out.Seal()
	forget(peer)
	if d := p.dialer; d != nil {
		DropFrom(s.endpoints.dialers, d.endpoint.Text, d)
		s.wg.Go(d.linger)
		return true, nil
	}
	s.wg.Go(func() {
		p.finishWithin(s.ctx)
		peer.conn.Close(nil)
	})
	return true, nil
}
