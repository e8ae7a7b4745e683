package binarystar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/closed"
	"clustermap/sockets"
)

var (
	// ErrClosed is returned by the methods of a node that has ended. It matches
	// net.ErrClosed (errors.Is).
	ErrClosed = closed.Error("binarystar: node is closed")

	// ErrNotActive is returned by Handover if the node is not active.
	ErrNotActive = errors.New("binarystar: node is not active")

	// ErrNoSuccessor is returned by Handover if the peer is silent or not passive, or
	// became so before it took over; this node is then active.
	ErrNoSuccessor = errors.New("binarystar: peer cannot take over")
)

// Node is one of the two nodes of a pair. All methods are safe for concurrent use.
type Node struct {
	opts   Options
	pub    *sockets.XPub // publishes this node's state
	sub    *sockets.Sub  // receives the peer's state
	began  time.Time
	ctx    context.Context // ends with the node
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when all goroutines have ended

	requests chan request   // from methods to run
	heard    chan candidate // from listen
	joined   chan struct{}  // a peer has subscribed; capacity 1
	refused  atomic.Uint64
	current  atomic.Pointer[reading] // stored by run
	buffer   []byte                  // used by run

	mu            sync.Mutex
	subscriptions map[*Subscription]bool // nil when the node has ended
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (n *Node) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "binarystar.Node") }

// reading is the result of run's last step.
type reading struct {
	machine machine
	status  Status
}

// request is a step that a method requests from run.
type request struct {
	event event
	reply chan machine // capacity 1
}

// New returns a node that is bound and runs. It waits for its peer in the background;
// the peer can start at any time. The context bounds only the binding; the node runs
// until Close. Invalid options are reported as *OptionError; errors of the endpoints
// are those of package sockets.
func New(ctx context.Context, o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	metadata := map[string]string{property: "1"}
	maps.Copy(metadata, o.Metadata)
	common := sockets.Options{
		Linger:         sockets.LingerNone, // old states are useless
		Metadata:       metadata,
		MaxMessageSize: 4 * MaxPayload,
		Monitor:        o.Monitor,
		// Reconnect if a connection broke without notice.
		HeartbeatInterval: max(o.Timeout, time.Second),
		ConnectTimeout:    max(2*o.Timeout, time.Second),
		// Find a peer that returns before it is silent.
		ReconnectInterval:    min(o.Interval, sockets.DefaultReconnectInterval),
		ReconnectIntervalMax: o.Interval,
		RecvHWM:              64,
	}
	out, in := common, common
	out.Security, out.XPubManual = o.BindSecurity, true
	out.SendHWM, out.MaxSubscriptions = 64, 64
	in.Security, in.Conflate = o.PeerSecurity, true // only the last state counts
	pub, err := sockets.NewXPub(out)
	if err != nil {
		return nil, err
	}
	sub, err := sockets.NewSub(in)
	if err != nil {
		return nil, errors.Join(err, pub.Close())
	}
	if err = sub.Subscribe(""); err == nil {
		err = pub.Bind(ctx, o.Bind)
	}
	if err == nil {
		err = sub.Connect(o.Peer)
	}
	if err != nil {
		return nil, errors.Join(err, pub.Close(), sub.Close())
	}
	n := &Node{
		opts:          o,
		pub:           pub,
		sub:           sub,
		began:         time.Now(),
		done:          make(chan struct{}),
		requests:      make(chan request),
		heard:         make(chan candidate),
		joined:        make(chan struct{}, 1),
		subscriptions: make(map[*Subscription]bool),
	}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	m := newMachine(o.Role, o.Timeout, 0, o.Epoch)
	m.voteless, m.compare, m.lost, m.copied, m.payload = o.Voteless, o.Compare, o.Lost, o.Copied, n.payload()
	n.current.Store(&reading{m, Status{State: m.state, Epoch: m.epoch}})

	var running sync.WaitGroup
	running.Go(n.run)
	running.Go(n.listen)
	running.Go(n.admit)
	go func() {
		defer close(n.done)
		running.Wait()
		_ = n.pub.Close()
		_ = n.sub.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		for s := range n.subscriptions {
			close(s.c)
		}
		n.subscriptions = nil
	}()
	return n, nil
}

// now is the time since the node began, on the monotonic clock.
func (n *Node) now() time.Duration { return time.Since(n.began) }

// run owns the machine. Only run changes it.
func (n *Node) run() {
	interval := time.NewTicker(n.opts.Interval)
	defer interval.Stop()
	n.publish()
	for {
		step := func(m machine) machine { return m }
		publish := false
		var reply chan<- machine
		select {
		case <-n.ctx.Done():
			return
		case c := <-n.heard:
			step = func(m machine) machine { return m.hear(n.now(), c) }
		case r := <-n.requests:
			step = func(m machine) machine { return m.step(n.now(), r.event) }
			reply = r.reply
		case <-n.joined:
			publish = true
		case <-interval.C:
			step = func(m machine) machine { return m.step(n.now(), tick) }
			publish = true
		}
		m := n.current.Load().machine
		m.payload = n.payload()
		m = step(m)
		changed, err := n.settle(m)
		if err != nil {
			n.cancel(fmt.Errorf("binarystar: epoch %d is not stored: %w", m.epoch, err))
			return
		}
		if changed || publish {
			n.publish()
		}
		if reply != nil {
			reply <- m
		}
	}
}

// settle makes m the node's machine, and reports whether state or epoch changed.
func (n *Node) settle(m machine) (changed bool, err error) {
	old := n.current.Load()
	if m.epoch != old.machine.epoch && n.opts.StoreEpoch != nil {
		if err := n.opts.StoreEpoch(m.epoch); err != nil {
			return false, err
		}
	}
	now := n.now()
	s := Status{State: m.state, Epoch: m.epoch, Reason: m.reason, Changes: old.status.Changes}
	if m.state != old.machine.state {
		s.Changes++
	}
	if p := m.peer; p.state != 0 {
		s.Peer = Peer{
			Alive:    !m.silent(now),
			State:    p.state,
			Heard:    n.began.Add(m.heard),
			Guide:    p.guide,
			Epoch:    p.epoch,
			Payload:  p.payload,
			SameRole: p.role == m.role,
		}
	}
	n.current.Store(&reading{m, s})
	if s.notable(&old.status) {
		s.Refused = n.refused.Load()
		n.mu.Lock()
		for sub := range n.subscriptions {
			sub.put(s)
		}
		n.mu.Unlock()
	}
	return m.state != old.machine.state || m.epoch != old.machine.epoch, nil
}

func (n *Node) payload() []byte {
	if n.opts.Payload == nil {
		return nil
	}
	p := n.opts.Payload()
	return p[:min(len(p), MaxPayload)]
}

// publish publishes the state in both forms. Each peer is subscribed to one of them. It
// does not wait for a peer.
func (n *Node) publish() {
	m := n.current.Load().machine
	n.buffer = appendShort(n.buffer[:0], m.announced(true))
	_ = n.pub.Send(n.ctx, n.buffer)
	n.buffer = appendLong(n.buffer[:0], candidate{state: m.announced(false), role: m.role, epoch: m.epoch, payload: m.payload})
	_ = n.pub.Send(n.ctx, n.buffer)
}

// listen passes the peer's messages to run.
func (n *Node) listen() {
	for {
		m, err := n.sub.Recv(n.ctx)
		if err != nil {
			return
		}
		c, err := parse(m, n.opts.Role)
		if err != nil {
			n.refused.Add(1)
			continue
		}
		select {
		case n.heard <- c:
		case <-n.ctx.Done():
			return
		}
	}
}

// admit subscribes each subscriber to the form that it understands.
func (n *Node) admit() {
	for {
		m, peer, err := n.pub.RecvFrom(n.ctx)
		if err != nil {
			return
		}
		if len(m) != 1 || len(m[0]) == 0 || m[0][0] > 1 {
			continue
		}
		change := n.pub.SubscribePeer
		if m[0][0] == 0 {
			change = n.pub.UnsubscribePeer
		}
		_, ours := peer.Property(property)
		for _, topic := range topics(ours, string(m[0][1:])) {
			_ = change(peer, topic) // the peer may have gone
		}
		select {
		case n.joined <- struct{}{}:
		default:
		}
	}
}

// do makes run take a step, and returns the machine after it.
func (n *Node) do(ctx context.Context, e event) (machine, error) {
	r := request{e, make(chan machine, 1)}
	select {
	case n.requests <- r:
	case <-n.ctx.Done():
		return machine{}, n.ended()
	case <-ctx.Done():
		return machine{}, ctx.Err()
	}
	select {
	case m := <-r.reply:
		return m, nil
	case <-n.done: // StoreEpoch has failed
		return machine{}, n.ended()
	case <-ctx.Done():
		return machine{}, ctx.Err()
	}
}

// ended is the error of methods of a node that has ended.
func (n *Node) ended() error {
	if err := n.Err(); err != nil {
		return errors.Join(ErrClosed, err)
	}
	return ErrClosed
}

// Vote reports whether this node should serve a client's request. Call it for each
// request, or for those with which clients that have lost their server try another one.
// It is a vote for this node: if the peer has been silent for Options.Timeout, a passive
// node, or a waiting primary, becomes active. If it changes nothing, Vote only reads the
// clock and does not wait.
func (n *Node) Vote(ctx context.Context) (accept bool, err error) {
	if n.ctx.Err() != nil {
		return false, n.ended()
	}
	old, now := n.current.Load().machine, n.now()
	m := old.step(now, vote)
	if m.state != old.state {
		if m, err = n.do(ctx, vote); err != nil {
			return false, err
		}
		now = n.now()
	}
	return m.accepts(now), nil
}

// Handover makes the peer take over from this node, which must be active, without a
// time-out or a vote. It returns nil when the peer is active and this node is passive.
// Before the call, the application must stop serving and make sure that the peer has all
// of its data, for example with Peer.Payload.
//
// If it returns ErrNotActive or ErrNoSuccessor, the state is as before. If it returns the
// context's error, the node is still yielding, and the peer may still take over. A
// yielding node takes part in votes like a passive one, so the pair recovers if the peer
// fails.
func (n *Node) Handover(ctx context.Context) error {
	s, err := n.Subscribe()
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := n.do(ctx, yield)
	switch {
	case err != nil:
		return err
	case m.state == StateActive:
		return ErrNoSuccessor
	case m.state != StateYielding:
		return ErrNotActive
	}
	for {
		switch n.State() {
		case StatePassive:
			return nil
		case StateActive:
			return ErrNoSuccessor
		}
		select {
		case <-s.C():
		case <-n.ctx.Done():
			return n.ended()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// State returns the current state.
func (n *Node) State() State { return n.current.Load().status.State }

// Epoch returns the number of the reign that the node last served or followed. Updates
// with the same number from different reigns are different updates.
func (n *Node) Epoch() uint64 { return n.current.Load().status.Epoch }

// Peer returns the state of the other node as far as this node knows it.
func (n *Node) Peer() Peer { return n.Status().Peer }

// Status returns the current status.
func (n *Node) Status() Status {
	s := n.current.Load().status
	s.Refused = n.refused.Load()
	return s
}

// Endpoint returns the endpoint at which the node publishes its state: Options.Bind
// with the address and port that the system chose.
func (n *Node) Endpoint() string { return n.pub.LastEndpoint() }

// Subscribe returns a subscription to changes of state, epoch and peer. Its first Status is
// the current one.
func (n *Node) Subscribe() (*Subscription, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.subscriptions == nil {
		return nil, n.ended()
	}
	s := &Subscription{n, make(chan Status, 1)}
	s.put(n.Status())
	n.subscriptions[s] = true
	return s, nil
}

// Done returns a channel that is closed when the node has ended, by Close or because
// StoreEpoch failed; Err returns the reason.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns the error that ended the node. It is nil while the node runs and after
// Close.
func (n *Node) Err() error {
	if err := context.Cause(n.ctx); err != nil && !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// Close stops the node and waits for its goroutines. The peer then considers it dead:
// call Handover first to stop an active node on purpose. Closing a closed node does
// nothing.
func (n *Node) Close() error {
	n.cancel(ErrClosed)
	<-n.done
	return nil
}
