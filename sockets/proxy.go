package sockets

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"clustermap/internal/queue"
)

// Proxy forwards messages between two sockets until the context is done, whose
// error it then returns, or until one of the sockets is closed (ErrClosed). It
// forwards in both directions if the socket types allow it, keeps messages
// whole, and keeps the order of messages of each peer. Typical pairs of
// frontend and backend are:
//
//	ROUTER, DEALER  a shared queue of requests for workers
//	XSUB, XPUB      a forwarder between publishers and subscribers
//	PULL, PUSH      a streamer
//
// Proxy also sends a copy of each forwarded message to each of the capture
// sockets, usually PUB, PUSH, DEALER or PAIR. If a Send on a capture socket
// waits, the proxy waits.
//
// Proxy receives from one socket only when the other one has room, so it does
// not queue messages itself, and back-pressure passes through it. When it ends,
// messages that it has received but not yet sent are lost: in each direction,
// at most one batch of one peer. Proxy does not close the sockets. Other
// goroutines may use them at the same time. If frontend and backend are the
// same socket, each message is sent back to that socket.
//
// If no message can be forwarded in either direction, or a capture socket
// cannot send, the error wraps [ErrCannotForward].
//
// See [SteerableProxy] for a proxy that can be paused and has statistics.
func Proxy(ctx context.Context, frontend, backend Socket, capture ...Socket) error {
	p, err := NewSteerableProxy(frontend, backend, ProxyOptions{Capture: capture})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// ErrCannotForward is returned, wrapped, for a proxy between sockets that
// cannot forward messages to each other because of their types.
var ErrCannotForward = errors.New("sockets: cannot forward between these socket types")

// ProxyOptions configures a [SteerableProxy].
type ProxyOptions struct {
	// Capture lists sockets to which the proxy sends a copy of each forwarded
	// message.
	Capture []Socket

	// Observe, if not nil, is called with all messages that the proxy receives,
	// before it forwards them. The proxy waits for it, so it must return
	// promptly. It is called concurrently from one goroutine per direction.
	Observe func(Observed)

	// Control, if not nil, is a socket from which the proxy receives commands,
	// like zmq_proxy_steerable in libzmq. A command is a message of one frame:
	// PAUSE, RESUME, TERMINATE or STATISTICS. Other commands are ignored.
	//
	// If Control can send, the proxy answers STATISTICS with eight frames, each
	// an unsigned 64-bit number in native byte order: frames and bytes received
	// from the frontend, sent to the frontend, received from the backend, and
	// sent to the backend. On a REP it answers every other command with an
	// empty frame when the command is done. If frames precede the command, such
	// as an identity on a ROUTER, the proxy puts them before the answer.
	Control Socket
}

// SteerableProxy is a proxy like [Proxy] that can be paused, resumed and
// terminated, and that counts the messages that it forwards. All methods are safe for
// concurrent use.
type SteerableProxy struct {
	flows   []*flow
	control Socket
	observe func(Observed)

	mu      sync.Mutex
	busy    int             // flows that are not stopped by a pause
	idle    queue.Gate      // for busy to become 0
	step    context.Context // ends when a pause begins
	stop    context.CancelFunc
	paused  bool
	resumed queue.Gate         // for the end of a pause
	over    bool               // Terminate was called
	end     context.CancelFunc // ends Run; nil unless it is running
	stats   *[2]flowStats
}

// NewSteerableProxy returns a proxy between two sockets. It forwards nothing
// until Run is called. If no message can be forwarded in either direction, a
// capture socket cannot send, or the control socket cannot receive, the error
// wraps [ErrCannotForward].
func NewSteerableProxy(frontend, backend Socket, o ProxyOptions) (*SteerableProxy, error) {
	p := &SteerableProxy{control: o.Control, observe: o.Observe, stats: new([2]flowStats)}
	for _, c := range o.Capture {
		if !sends(c) {
			return nil, fmt.Errorf("%w: a %v cannot capture, because it does not send", ErrCannotForward, c.engine().Kind())
		}
	}
	if o.Control != nil && !receives(o.Control) {
		return nil, fmt.Errorf("%w: a %v cannot control, because it does not receive", ErrCannotForward, o.Control.engine().Kind())
	}
	add := func(from, to Socket, stats *flowStats) {
		if receives(from) && sends(to) {
			p.flows = append(p.flows, newFlow(p, from, to, o.Capture, stats))
		}
	}
	add(frontend, backend, &p.stats[0])
	if frontend.engine() != backend.engine() {
		add(backend, frontend, &p.stats[1])
	}
	if len(p.flows) == 0 {
		return nil, fmt.Errorf("%w: %v, %v", ErrCannotForward, frontend.engine().Kind(), backend.engine().Kind())
	}
	return p, nil
}

// ErrRunning is returned by SteerableProxy.Run if the proxy is already running.
var ErrRunning = errors.New("sockets: proxy is already running")

// Run forwards messages until the context is done, whose error it then returns,
// until Terminate is called, after which it returns nil, or until one of the
// sockets fails, usually because it was closed. If Pause was called before, Run
// starts paused. A proxy can run again after Run has returned.
func (p *SteerableProxy) Run(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	if p.end != nil {
		p.mu.Unlock()
		return ErrRunning
	}
	p.over, p.end, p.busy = false, cancel, len(p.flows)
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
			p.mu.Lock()
			defer p.mu.Unlock()
			p.parked()
		})
	}
	if p.control != nil {
		wg.Go(func() {
			defer cancel()
			failed <- p.serveControl(inner)
		})
	}
	err := <-failed // the first error, which ended the other goroutines
	wg.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	p.end = nil
	switch {
	case p.over:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// Pause stops forwarding and waits until no message is in progress. Messages
// then wait in the queues of the sockets. If the context is done first, Pause
// returns its error, but the proxy pauses nevertheless.
func (p *SteerableProxy) Pause(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused && p.end != nil {
		p.stop()
	}
	p.paused = true
	if p.busy == 0 {
		return nil
	}
	return p.idle.Wait(ctx, &p.mu, nil, nil)
}

// Resume continues forwarding after Pause.
func (p *SteerableProxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	p.resumed.WakeAll()
}

// Terminate ends Run, if the proxy is running. It does not wait until Run has
// returned.
func (p *SteerableProxy) Terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		p.over = true
		p.end()
	}
}

// proceed waits while the proxy is paused and returns the context for the next
// step of a flow, which ends when the next pause begins.
func (p *SteerableProxy) proceed(ctx context.Context) (context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.paused && ctx.Err() == nil {
		p.parked()
		_ = p.resumed.Wait(ctx, &p.mu, nil, nil) // the end of ctx is looked at below
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

// parked records that a flow has stopped. mu must be held.
func (p *SteerableProxy) parked() {
	if p.busy--; p.busy == 0 {
		p.idle.WakeAll()
	}
}
