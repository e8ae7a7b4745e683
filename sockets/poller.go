package sockets

import (
	"context"
	"slices"
	"sync"

	"clustermap/zmtp"
)

// Socket is what all socket types of this package have in common. No other
// types implement it.
type Socket interface {
	Bind(ctx context.Context, endpoint string) error
	Unbind(endpoint string) error
	Connect(endpoint string) error
	Disconnect(endpoint string) error
	LastEndpoint() string
	Peers() []PeerStats
	Readable() <-chan struct{}
	Close() error
	CloseContext(ctx context.Context) error

	engine() *socket
}

func (s *socket) engine() *socket { return s }

// PollEvents is what a [Poller] waits for.
type PollEvents uint8

const (
	// PollIn: a receive call would not wait.
	PollIn PollEvents = 1 << iota
	// PollOut: a send call would not wait.
	PollOut
	// pollEnd: the socket is closed.
	pollEnd
)

// Ready is a socket that a [Poller] found ready, and for what.
type Ready struct {
	Socket Socket
	Events PollEvents // of those that were asked for
}

// Poller waits until one of several sockets is ready, without a goroutine for
// each (libzmq's zmq_poller). It tells the state, not the change: a socket that
// has messages is ready at every Wait until they are taken.
//
// All methods are safe for concurrent use. With several goroutines in Wait, or
// receiving from the same socket, another one may be first to take what made a
// socket ready; so use TryRecv and TrySend then, which do not wait. The zero
// Poller is empty and ready for use.
type Poller struct {
	mu      sync.Mutex
	items   []pollItem
	waiters int
	token   chan struct{} // capacity 1: look again
}

type pollItem struct {
	socket Socket
	events PollEvents
}

// init makes the token. mu must be held.
func (p *Poller) init() {
	if p.token == nil {
		p.token = make(chan struct{}, 1)
	}
}

// look makes one waiter look again. mu must be held.
func (p *Poller) look() {
	select {
	case p.token <- struct{}{}:
	default:
	}
}

// Add has the Poller wait for events of a socket too. For a socket that is
// there already it replaces the events. It takes effect at once, also for those
// who are in Wait. A closed socket is ErrClosed.
func (p *Poller) Add(s Socket, events PollEvents) error {
	if err := s.engine().open(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.init()
	if i := p.index(s); i >= 0 {
		p.items[i].events = events
	} else {
		p.items = append(p.items, pollItem{s, events})
		s.engine().in.watched(p.token)
	}
	p.look()
	return nil
}

// Remove takes a socket out; one that is not there is ignored.
func (p *Poller) Remove(s Socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.index(s); i >= 0 {
		p.items = slices.Delete(p.items, i, i+1)
		s.engine().in.watch.remove(p.token)
	}
}

// Close takes all sockets out, so that they do without the cost of being
// watched. It closes none of them, and the Poller can be used again.
func (p *Poller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, item := range p.items {
		item.socket.engine().in.watch.remove(p.token)
	}
	p.items = nil
}

func (p *Poller) index(s Socket) int {
	return slices.IndexFunc(p.items, func(item pollItem) bool { return item.socket.engine() == s.engine() })
}

// Wait waits until at least one of the sockets is ready, and returns all that
// are, in the order in which they were added. It returns the context's error if
// that ends first; with a context that has ended it only looks. A closed socket
// is ready for whatever it was added for, since calls on it return at once,
// with ErrClosed; it stays so until it is removed.
func (p *Poller) Wait(ctx context.Context) ([]Ready, error) { return p.WaitInto(ctx, nil) }

// WaitInto is Wait with memory of the caller's: the result is appended to
// ready[:0].
func (p *Poller) WaitInto(ctx context.Context, ready []Ready) ([]Ready, error) {
	ready = ready[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.init()
	for {
		for _, item := range p.items {
			if events := item.socket.engine().poll(item.events); events != 0 {
				ready = append(ready, Ready{item.socket, events})
			}
		}
		if len(ready) > 0 {
			if p.waiters > 0 {
				p.look() // it may be ready for them as well
			}
			return ready, nil
		}
		p.waiters++
		p.mu.Unlock()
		var err error
		select {
		case <-p.token:
		case <-ctx.Done():
			err = ctx.Err()
		}
		p.mu.Lock()
		p.waiters--
		if err != nil {
			return nil, err
		}
	}
}

// The optional parts of a pattern that tell a Poller when calls would wait.
type (
	// receivable is a pattern whose receive calls may wait, or fail, though
	// the inbox has messages, or the other way about.
	receivable interface{ receivable() bool }
	// sendable is a pattern whose send calls may wait. Without it they do not,
	// or the socket does not send.
	sendable interface{ sendable() bool }
)

// poll returns those of the events for which the socket is ready.
func (s *socket) poll(events PollEvents) PollEvents {
	if s.open() != nil {
		return events
	}
	var ready PollEvents
	if events&PollIn != 0 {
		if r, ok := s.pattern.(receivable); ok && r.receivable() || !ok && s.in.waiting() {
			ready |= PollIn
		}
	}
	if events&PollOut != 0 {
		if w, ok := s.pattern.(sendable); !ok || w.sendable() {
			ready |= PollOut
		}
	}
	return ready
}

// anyRoom says that a peer would take a message.
func (s *socket) anyRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pipes {
		if p.out.hasRoom() {
			return true
		}
	}
	return false
}

// allRoom says that every peer would take a message.
func (s *socket) allRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pipes {
		if !p.out.hasRoom() {
			return false
		}
	}
	return true
}

// hasRoom says that a pipe would take a message. A full one is told that
// somebody asked, and so tells when it takes messages again.
func (lb *balancer) hasRoom() bool {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return slices.ContainsFunc(lb.pipes, (*pipe).hasRoom)
}

func (d *dealerPattern) sendable() bool { return d.balancer.hasRoom() }

// sendable: what a ROUTER cannot send it drops, or refuses if that is wanted,
// and then a peer is needed.
func (r *routerPattern) sendable() bool { return !r.opts.Mandatory || r.anyRoom() }

// sendable: with Block a send call waits until every peer has room. Peers that are
// too far behind in a log are first given queues of their own, since only a queue
// tells when it has room.
func (p *pubPattern) sendable() bool {
	if p.opts.FullPolicy != Block {
		return true
	}
	p.subs.Lock()
	for _, g := range p.subs.all {
		(*publisher)(p).prepare(g)
	}
	p.subs.Unlock()
	return p.allRoom()
}

func (x *xpubPattern) sendable() bool { return (*pubPattern)(&x.publisher).sendable() }

// sendable: a SUB has no send call, and that of an XSUB never waits.
func (s *subPattern) sendable() bool { return s.kind == zmtp.XSUB }
