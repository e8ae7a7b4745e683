package sockets

import (
	"sync"

	"clustermap/internal/engine"
	"clustermap/zmtp"
)

// Pair is a PAIR socket (RFC 31). It exchanges messages with a single peer. Its
// peer is the first one that connects to it, or the first endpoint that the
// socket connects to, whether or not that is reachable; with Options.Immediate
// it is the peer of the first established connection. The socket disconnects
// other peers after their handshake with ErrPaired; they may try again.
//
// If the connection to the peer ends, the messages queued for it are lost if it
// had connected to this socket (Bind). For an endpoint of Connect they are kept,
// and sent when the socket has connected again, unless Options.Immediate is set.
// Messages already passed to the operating system can be lost in either case. Messages
// that the peer has sent can still be received.
//
// All methods are safe for concurrent use.
type Pair struct {
	receiving
	balanced // over the single pipe

	mu   sync.Mutex
	pipe *engine.Pipe // to the peer; nil if there is none
}

// NewPair returns a new PAIR socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewPair(o Options) (*Pair, error) {
	p := &Pair{}
	return made(p, p.start(&p.socket, zmtp.TypePair, o, engine.Pattern{
		Added: p.added, Removed: p.leave, Attach: p.attach, Detach: p.detach,
	}))
}

// take makes q the single pipe if there is none yet, and reports whether q is
// the single pipe.
func (p *Pair) take(q *engine.Pipe) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pipe == nil {
		p.pipe = q
		p.balancer.Add(q)
	}
	return p.pipe == q
}

// leave allows another peer if q is the single pipe.
func (p *Pair) leave(q *engine.Pipe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pipe == q {
		p.pipe = nil
		p.balancer.Remove(q)
	}
}

func (p *Pair) added(q *engine.Pipe) {
	if !q.Immediate {
		p.take(q)
	}
}

func (p *Pair) attach(q *engine.Pipe, peer *engine.Peer) error {
	if !p.take(q) {
		peer.Disconnect(ErrPaired)
		return ErrPaired
	}
	return nil
}

func (p *Pair) detach(q *engine.Pipe, _ *engine.Peer) {
	if q.Transient() {
		p.leave(q)
	}
}
