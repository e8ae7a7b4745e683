package sockets

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Proxy forwards messages between two sockets until the context ends, whose
// error it then returns, or until one of the sockets is closed (ErrClosed).
// Whole messages go on as they came, in both directions where the types of the
// sockets allow it, each in the order of its peer. Typical pairs, frontend first:
//
//	ROUTER, DEALER  a queue that shares requests out among workers
//	XSUB, XPUB      a forwarder between publishers and subscribers
//	PULL, PUSH      a streamer
//
// A copy of everything that is forwarded goes to each of the capture sockets
// (usually PUB, PUSH, DEALER or PAIR; capture waits as a Send on it does, and
// the proxy with it).
//
// A message is taken from a socket when the other one has room, so that a slow
// side holds the other one back by its queues and nothing piles up in between.
// When Proxy ends, messages that it had taken and that found no room are lost:
// at most what one peer had sent together, for each direction. It closes
// nothing. Others may use the sockets at the same time. The same socket at both
// sides gets back what it receives.
//
// See [SteerableProxy] for pausing and statistics.
func Proxy(ctx context.Context, frontend, backend Socket, capture ...Socket) error {
	p, err := NewSteerableProxy(frontend, backend, ProxyOptions{Capture: capture})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// ErrCannotForward is returned for a proxy between sockets of which neither
// receives what the other one could send.
var ErrCannotForward = errors.New("sockets: nothing can be forwarded between these types")

// ProxyOptions is what a proxy can do besides forwarding.
type ProxyOptions struct {
	// Capture lists sockets that get a copy of each forwarded message.
	Capture []Socket

	// Observe, if not nil, is shown everything that the proxy receives, before it
	// is forwarded. The proxy waits for it, so it must return at once. It is called
	// by one goroutine for each direction, at the same time.
	Observe func(Observed)

	// Control, if not nil, is a socket that commands come from, as libzmq's
	// zmq_proxy_steerable has it: messages of one frame, PAUSE, RESUME,
	// TERMINATE or STATISTICS; others are ignored. STATISTICS is answered, if
	// the socket can send, with eight frames of eight bytes, numbers in the
	// machine's order: frames and bytes received from the frontend, sent to
	// it, received from the backend, and sent to it. A REP answers everything
	// else with an empty frame, when it is done. Frames before the command, as
	// a ROUTER has them, are put before the answer.
	Control Socket
}

// SteerableProxy is a proxy, as [Proxy], that can be paused and tells what it
// has forwarded. All methods are safe for concurrent use.
type SteerableProxy struct {
	flows   []*flow
	control Socket
	observe func(Observed)

	mu      sync.Mutex
	running bool
	paused  bool
	busy    int             // flows that are not parked by a pause
	idle    chan struct{}   // closed when busy becomes 0; nil while nobody waits
	step    context.Context // ends with a pause
	stop    context.CancelFunc
	resumed chan struct{} // closed by Resume
	over    bool          // TERMINATE
	end     context.CancelFunc
	stats   *[2]flowStats
}

// NewSteerableProxy makes a proxy. It does nothing before Run.
func NewSteerableProxy(frontend, backend Socket, o ProxyOptions) (*SteerableProxy, error) {
	p := &SteerableProxy{control: o.Control, observe: o.Observe, stats: new([2]flowStats)}
	var capture []*forwarder
	for _, c := range o.Capture {
		if !sends(c) {
			return nil, fmt.Errorf("%w: a %v captures nothing", ErrCannotForward, c.engine().kind)
		}
		capture = append(capture, newForwarder(c))
	}
	if o.Control != nil && !receives(o.Control) {
		return nil, fmt.Errorf("%w: a %v receives no commands", ErrCannotForward, o.Control.engine().kind)
	}
	add := func(from, to Socket, stats *flowStats) {
		if receives(from) && sends(to) {
			p.flows = append(p.flows, newFlow(p, from, to, capture, stats))
		}
	}
	add(frontend, backend, &p.stats[0])
	if frontend.engine() != backend.engine() {
		add(backend, frontend, &p.stats[1])
	}
	if len(p.flows) == 0 {
		return nil, fmt.Errorf("%w: %v, %v", ErrCannotForward, frontend.engine().kind, backend.engine().kind)
	}
	return p, nil
}

// ErrRunning is returned by SteerableProxy.Run while another Run is under way.
var ErrRunning = errors.New("sockets: the proxy is running")

// Run forwards until the context ends, whose error it then returns; or until
// Terminate, and then returns nil; or until one of the sockets fails, usually
// because it was closed. A proxy that was paused before it ran begins paused.
// It can run again.
func (p *SteerableProxy) Run(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	if p.running {
		p.mu.Unlock()
		return ErrRunning
	}
	p.running, p.over, p.end, p.busy = true, false, cancel, len(p.flows)
	p.step, p.stop = context.WithCancel(inner)
	if p.paused {
		p.stop()
	}
	p.mu.Unlock()

	var wg sync.WaitGroup
	failed := make(chan error, len(p.flows)+1)
	for _, f := range p.flows {
		wg.Go(func() {
			defer cancel()
			failed <- f.run(inner)
			p.park()
		})
	}
	if p.control != nil {
		wg.Go(func() {
			defer cancel()
			failed <- p.obey(inner)
		})
	}
	err := <-failed // the one that ended the others
	wg.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	p.running = false
	switch {
	case p.over:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// Pause stops forwarding, and returns when nothing is under way any more: what
// comes waits in the sockets' queues. It returns the context's error if that
// ends first; the pause has begun all the same.
func (p *SteerableProxy) Pause(ctx context.Context) error {
	p.mu.Lock()
	if !p.paused {
		p.paused, p.resumed = true, make(chan struct{})
		if p.running {
			p.stop()
		}
	}
	if p.busy == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Resume goes on with forwarding after Pause.
func (p *SteerableProxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused {
		return
	}
	p.paused = false
	close(p.resumed)
}

// Terminate ends Run, if it is under way.
func (p *SteerableProxy) Terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.over = true
		p.end()
	}
}

// proceed returns the context for the next step of a flow, which ends with the
// next pause, once there is no pause.
func (p *SteerableProxy) proceed(ctx context.Context) (context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.paused && ctx.Err() == nil {
		resumed := p.resumed
		p.parked()
		p.mu.Unlock()
		select {
		case <-resumed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		p.busy++
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p.step.Err() != nil { // the first after the pause
		p.step, p.stop = context.WithCancel(ctx)
	}
	return p.step, nil
}

// parked says that a flow stands still. mu must be held.
func (p *SteerableProxy) parked() {
	p.busy--
	if p.busy == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// park says that a flow has ended.
func (p *SteerableProxy) park() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked()
}
