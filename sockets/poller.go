package sockets

import (
	"context"
	"slices"
	"sync"

	"clustermap/internal/engine"
	"clustermap/internal/wake"
)

// Socket is the interface that all socket types of this package implement.
// Other packages cannot implement it.
type Socket interface {
	Bind(ctx context.Context, endpoint string) error
	Unbind(endpoint string) error
	Connect(endpoint string) error
	Disconnect(endpoint string) error
	LastEndpoint() string
	Peers() []PeerStats
	Totals() Totals
	Readable() <-chan struct{}
	Events() PollEvents
	OnReady(events PollEvents, f func(PollEvents)) (stop func(), err error)
	WaitPeers(ctx context.Context, n int) error
	Endpoints() []EndpointStatus
	Close() error
	CloseContext(ctx context.Context) error

	engine() *engine.Socket
}

// PollEvents is a set of events for which a [Poller] waits.
type PollEvents uint8

const (
	// PollIn means that a receive call would not wait.
	PollIn = PollEvents(engine.PollIn)
	// PollOut means that a send call would not wait. A ROUTER drops messages
	// that it cannot send, so it is always ready; with Options.Mandatory it is
	// ready while at least one peer has room, not necessarily the one to which
	// the next message goes. As in libzmq, a STREAM is always ready, though a send
	// call to a peer whose queue is full waits.
	PollOut = PollEvents(engine.PollOut)
	// pollEnd means that the socket is closed.
	pollEnd = PollEvents(engine.PollEnd)
)

// Ready is a socket that a [Poller] found ready.
type Ready struct {
	Socket Socket
	Events PollEvents // the events for which it is ready, among those given to Add
}

// Poller waits until at least one of several sockets is ready, like zmq_poller
// in libzmq. It is level-triggered: a socket with messages is ready in every
// call of Wait until the messages have been received. A Poller needs no
// goroutine per socket.
//
// The zero Poller is empty and ready to use. All methods are safe for
// concurrent use. If several goroutines call Wait, or receive from the same
// socket, another goroutine may have taken the message or the room that made a socket
// ready; use TryRecv and TrySend then, which do not wait.
type Poller struct {
	mu      sync.Mutex
	items   []Ready // with the events given to Add
	waiters int
	token   chan struct{} // capacity 1: check the sockets again
}

// init creates the token. mu must be held.
func (p *Poller) init() {
	if p.token == nil {
		p.token = make(chan struct{}, 1)
	}
}

// look makes one waiter check the sockets again. mu must be held.
func (p *Poller) look() {
	wake.Signal(p.token)
}

// Add adds a socket, or replaces the events of a socket that was added before.
// It also affects calls of Wait that are in progress. If the socket is closed,
// Add returns ErrClosed.
func (p *Poller) Add(s Socket, events PollEvents) error {
	if err := s.engine().Open(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.init()
	if i := p.index(s); i >= 0 {
		p.items[i].Events = events
	} else {
		p.items = append(p.items, Ready{s, events})
		s.engine().In.Watch(p.token)
	}
	p.look()
	return nil
}

// Remove removes a socket. It does nothing if the socket was not added.
func (p *Poller) Remove(s Socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.index(s); i >= 0 {
		p.items = slices.Delete(p.items, i, i+1)
		s.engine().In.Unwatch(p.token)
	}
}

// Close removes all sockets, which ends the small cost of observing them. It
// does not close the sockets. The Poller can be used again.
func (p *Poller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, item := range p.items {
		item.Socket.engine().In.Unwatch(p.token)
	}
	p.items = nil
}

func (p *Poller) index(s Socket) int {
	return slices.IndexFunc(p.items, func(item Ready) bool { return item.Socket.engine() == s.engine() })
}

// Wait waits until at least one socket is ready or the context is done, and
// returns all ready sockets in the order in which they were added. If the
// context is done already, Wait checks the sockets once; it returns the
// context's error only if none is ready.
//
// A closed socket is ready for all events for which it was added, because calls
// on it return ErrClosed immediately. It stays ready until it is removed.
func (p *Poller) Wait(ctx context.Context) ([]Ready, error) { return p.WaitInto(ctx, nil) }

// WaitInto is like Wait but appends the result to ready[:0], so that callers
// can reuse memory.
func (p *Poller) WaitInto(ctx context.Context, ready []Ready) ([]Ready, error) {
	ready = ready[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.init()
	for {
		for _, item := range p.items {
			if events := item.Socket.engine().Poll(engine.Events(item.Events)); events != 0 {
				ready = append(ready, Ready{item.Socket, PollEvents(events)})
			}
		}
		if len(ready) > 0 {
			if p.waiters > 0 {
				p.look() // the sockets may be ready for other waiters too
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
