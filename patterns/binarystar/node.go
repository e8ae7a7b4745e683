package binarystar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"clustermap/internal/closed"
	"clustermap/internal/election"
	"clustermap/internal/wake"
	"clustermap/patterns/internal/subscribe"
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

	// ErrPeerHeard is returned by Promote if the peer is not silent.
	ErrPeerHeard = errors.New("binarystar: peer is heard")

	// ErrPeerDown is returned by Probe if the peer's machine answers that nothing
	// listens at Options.Peer.
	ErrPeerDown = errors.New("binarystar: nothing listens at the peer's endpoint")
)

// Node is one of the two nodes of a pair. All methods are safe for concurrent use.
type Node struct {
	opts   Options
	pub    *sockets.XPub                // publishes this node's state
	sub    *sockets.Sub                 // receives the peer's state
	dial   func() (*sockets.Sub, error) // another one, see Probe
	began  time.Time
	ctx    context.Context // ends with the node
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when all goroutines have ended

	requests chan request  // from methods to run
	heard    chan message  // from listen
	joined   chan struct{} // a peer has subscribed; capacity 1
	refused  atomic.Uint64
	down     atomic.Bool                      // the peer's machine says so since the peer was last heard
	secures  atomic.Pointer[sockets.Security] // Options.PeerSecurity, or what has replaced it
	current  atomic.Pointer[reading]          // stored by run

	// Used by run.
	buffer []byte
	link   *sockets.Peer // on which the peer was last heard
	stale  *sockets.Peer // the link before the last redial: what it still delivers is old

	mu            sync.Mutex
	probes        []chan error           // capacity 1 each
	subscriptions map[*Subscription]bool // nil when the node has ended
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (n *Node) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "binarystar.Node") }

// reading is the result of run's last step.
type reading struct {
	machine election.Machine
	status  Status
}

// message is a message of the peer, and the connection that delivered it, or nil for one of
// Probe.
type message struct {
	election.Candidate
	link *sockets.Peer
}

// request is a step that a method requests from run.
type request struct {
	event election.Event
	reply chan election.Machine // capacity 1
	probe chan error            // capacity 1: of Probe, which has no event
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
		// Reconnect if a connection broke without notice.
		HeartbeatInterval: max(o.Timeout, time.Second),
		HandshakeTimeout:  max(2*o.Timeout, time.Second),
		// After a packet was lost, another attempt, whose first packet goes out at once,
		// finds a network that works again earlier than the repetitions of this one, which
		// the system makes at growing intervals.
		ConnectTimeout: max(o.Interval, leastConnect),
		// Find a peer that returns before it is silent.
		ReconnectInterval:    min(o.Interval, sockets.DefaultReconnectInterval),
		ReconnectIntervalMax: o.Interval,
		RecvHWM:              64,
	}
	n := new(Node)
	n.secures.Store(&o.PeerSecurity)
	out, in := common, common
	out.Monitor = o.Monitor
	in.Monitor = func(e sockets.Event) {
		if e.Kind == sockets.EventConnectFailed && errors.Is(e.Err, syscall.ECONNREFUSED) {
			n.down.Store(true)
			n.probed(ErrPeerDown)
		}
		if o.Monitor != nil {
			o.Monitor(e)
		}
	}
	out.Security, out.XPubManual = o.BindSecurity, true
	out.SendHWM, out.MaxSubscriptions = 64, 64
	in.Conflate = true // only the last state counts
	pub, err := sockets.NewXPub(out)
	if err != nil {
		return nil, err
	}
	n.opts, n.pub, n.began = o, pub, time.Now()
	n.dial = func() (*sockets.Sub, error) {
		in := in
		in.Security = *n.secures.Load()
		return subscribe.To([]string{""}, []string{o.Peer}, in)
	}
	n.done, n.requests, n.heard, n.joined = make(chan struct{}), make(chan request), make(chan message), make(chan struct{}, 1)
	n.subscriptions = make(map[*Subscription]bool)
	if err = pub.Bind(ctx, o.Bind); err == nil {
		n.sub, err = n.dial()
	}
	if err != nil {
		return nil, errors.Join(err, pub.Close())
	}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	m := election.NewMachine(o.Role, o.Timeout, 0, o.Epoch)
	m.Voteless, m.Compare, m.Copied, m.Payload = o.Voteless, o.Compare, o.Copied, n.payload()
	n.current.Store(&reading{m, Status{State: m.State, Epoch: m.Epoch}})

	var running sync.WaitGroup
	running.Go(n.run)
	running.Go(func() { n.listen(n.ctx, n.sub) })
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

// SetSecurity replaces [Options.BindSecurity] and [Options.PeerSecurity], for connections that begin later.
func (n *Node) SetSecurity(bind, peer sockets.Security) error {
	if err := errors.Join(bind.Validate(), peer.Validate()); err != nil {
		return err
	}
	n.secures.Store(&peer)
	return errors.Join(
		n.pub.SetOptions(func(o *sockets.Options) { o.Security = bind }),
		n.sub.SetOptions(func(o *sockets.Options) { o.Security = peer }),
	)
}

// now is the time since the node began, on the monotonic clock.
func (n *Node) now() time.Duration { return time.Since(n.began) }

// run owns the machine. Only run changes it.
func (n *Node) run() {
	interval := time.NewTicker(n.opts.Interval)
	defer interval.Stop()
	n.publish()
	// A connection is replaced after every intervals of silence.
	silence, every := 0, max(1, int((leastConnect+n.opts.Interval-1)/n.opts.Interval))
	reached := false // the peer has connected since the last interval
	for {
		step := func(m election.Machine) election.Machine { return m }
		publish, heard, beside := false, false, false
		var reply chan<- election.Machine
		select {
		case <-n.ctx.Done():
			return
		case c := <-n.heard:
			if c.link == n.stale && c.link != nil {
				continue
			}
			if !c.Guide && !n.opts.Valid(c.Payload) {
				n.refused.Add(1)
				continue
			}
			if most := n.current.Load().machine.Epoch + election.MaxJump; c.Epoch > most {
				// Only cut: it may be the peer after all, to which a forged message has come.
				n.refused.Add(1)
				c.Epoch = most
			}
			if beside = c.link == nil; !beside {
				n.link = c.link
			}
			silence, heard = 0, true
			n.down.Store(false)
			step = func(m election.Machine) election.Machine { return m.Hear(n.now(), c.Candidate) }
		case r := <-n.requests:
			if r.probe != nil {
				n.mu.Lock()
				n.probes = append(n.probes, r.probe) // first: the new connection may be refused at once
				n.mu.Unlock()
				n.redial(true)
				continue
			}
			step = func(m election.Machine) election.Machine { return m.Step(n.now(), r.event) }
			reply = r.reply
		case <-n.joined:
			publish = true
			if silence > 0 && !reached {
				// Both directions work again, and the peer should not be the only one that
				// knows the other's state.
				reached = true
				n.redial(true)
			}
		case <-interval.C:
			step = func(m election.Machine) election.Machine { return m.Step(n.now(), election.Tick) }
			publish, reached = true, false
			if silence++; silence > every && silence%every == 0 {
				n.redial(false)
			}
		}
		before := n.current.Load().machine
		before.Payload = n.payload()
		m := step(before)
		if n.opts.Stop != nil && before.State == StateActive && m.State != StateActive {
			n.opts.Stop(before.Epoch)
			m.Payload = n.payload()
		}
		changed, err := n.settle(m)
		if err != nil {
			n.cancel(fmt.Errorf("binarystar: epoch %d is not stored: %w", m.Epoch, err))
			return
		}
		if changed || publish {
			n.publish()
		}
		if heard && n.probed(nil) && beside {
			n.redial(true) // its attempt is older than the one that succeeded
		}
		if reply != nil {
			reply <- m
		}
	}
}

// redial replaces the connection to the peer, on which nothing was heard for an interval:
// after a fault of the network it may take as long again until the system sends on an old
// connection, and what it delivers first is old. An attempt that is in progress is
// replaced only at the request of Probe, for it would never succeed if it took an interval.
func (n *Node) redial(attempt bool) {
	connected := false
	for _, p := range n.sub.Peers() {
		connected = connected || p.Connected
	}
	if !connected && !attempt {
		return
	}
	n.stale = n.link
	_ = n.sub.Disconnect(n.opts.Peer)
	_ = n.sub.Connect(n.opts.Peer) // as in New; the node may have ended
}

// Probe connects to the peer anew. It returns nil when the peer was heard on the new
// connection, and the node has acted on that; ErrPeerDown if its machine answers that
// the peer does not run; or the context's error. So a node that may have been cut off
// learns whether the peer has taken over meanwhile. If a packet of one attempt is lost,
// because the network only begins to work, the system repeats it too late: until there is
// an answer, further attempts run beside the first, at intervals of [Options.Timeout] / 40,
// or 15 ms if that is longer, and each for 40 of these.
func (n *Node) Probe(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case n.requests <- request{probe: done}:
	case <-n.ctx.Done():
		return n.ended()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.probes = slices.DeleteFunc(n.probes, func(p chan error) bool { return p == done })
	}()
	var attempts sync.WaitGroup
	defer attempts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	interval := max(n.opts.Timeout/maxAttempts, leastAttempt)
	another := time.NewTicker(interval)
	defer another.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-n.ctx.Done():
			return n.ended()
		case <-ctx.Done():
			return ctx.Err()
		case <-another.C:
			if sub, err := n.dial(); err == nil { // else other attempts may have an answer
				attempts.Go(func() {
					defer sub.Close()
					ctx, end := context.WithTimeout(ctx, maxAttempts*interval)
					defer end()
					n.listen(ctx, sub)
				})
			}
		}
	}
}

// probed ends all calls of Probe, and returns false if there are none.
func (n *Node) probed(err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := len(n.probes) > 0
	for _, p := range n.probes {
		p <- err
	}
	n.probes = nil
	return asked
}

// settle makes m the node's machine, and reports whether state or epoch changed.
func (n *Node) settle(m election.Machine) (changed bool, err error) {
	old := n.current.Load()
	if m.Epoch != old.machine.Epoch && n.opts.StoreEpoch != nil {
		if err := n.opts.StoreEpoch(m.Epoch); err != nil {
			return false, err
		}
	}
	now := n.now()
	s := Status{State: m.State, Epoch: m.Epoch, Reason: m.Reason, Changes: old.status.Changes}
	if m.State != old.machine.State {
		s.Changes++
	}
	if p := m.Peer; p.State != 0 {
		s.Peer = Peer{
			Alive:    !m.Silent(now),
			State:    p.State,
			Heard:    n.began.Add(m.Heard),
			Guide:    p.Guide,
			Epoch:    p.Epoch,
			Payload:  p.Payload,
			SameRole: p.Role == m.Role,
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
	return m.State != old.machine.State || m.Epoch != old.machine.Epoch, nil
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
	n.buffer = appendShort(n.buffer[:0], m.Announced(true))
	_ = n.pub.Send(n.ctx, n.buffer)
	n.buffer = appendLong(n.buffer[:0], election.Candidate{State: m.Announced(false), Role: m.Role, Epoch: m.Epoch, Payload: m.Payload})
	_ = n.pub.Send(n.ctx, n.buffer)
}

// listen passes the peer's messages to run.
func (n *Node) listen(ctx context.Context, sub *sockets.Sub) {
	var b sockets.Batch
	defer b.Release()
	for {
		if sub.RecvBatch(ctx, &b) != nil {
			return
		}
		link := b.Peer()
		if sub != n.sub {
			link = nil
		}
		for i := range b.Len() {
			c, err := parse(b.Message(i), n.opts.Role)
			if err != nil {
				n.refused.Add(1)
				continue
			}
			select {
			case n.heard <- message{c, link}:
			case <-ctx.Done():
				return
			}
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
		wake.Signal(n.joined)
	}
}

// do makes run take a step, and returns the machine after it.
func (n *Node) do(ctx context.Context, e election.Event) (election.Machine, error) {
	r := request{event: e, reply: make(chan election.Machine, 1)}
	select {
	case n.requests <- r:
	case <-n.ctx.Done():
		return election.Machine{}, n.ended()
	case <-ctx.Done():
		return election.Machine{}, ctx.Err()
	}
	select {
	case m := <-r.reply:
		return m, nil
	case <-n.done: // StoreEpoch has failed
		return election.Machine{}, n.ended()
	case <-ctx.Done():
		return election.Machine{}, ctx.Err()
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
	m := old.Step(now, election.Vote)
	if m.State != old.State {
		if m, err = n.do(ctx, election.Vote); err != nil {
			return false, err
		}
		now = n.now()
	}
	return m.Accepts(now), nil
}

// CanTakeOver reports whether the node is not active, and a vote would make it so now.
func (n *Node) CanTakeOver() bool {
	m := n.current.Load().machine
	return m.CanTakeOver(n.now())
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
	m, err := n.do(ctx, election.Yield)
	switch {
	case err != nil:
		return err
	case m.State == StateActive:
		return ErrNoSuccessor
	case m.State != StateYielding:
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

// Promote makes this node active although it knows of no reason to be: an operator has
// made sure that the peer is gone and does not come back with newer data, or accepts that
// it will be discarded. So a backup can serve that has not heard its primary since it
// started, which otherwise waits for it. No client's vote is needed.
//
// It returns nil if the node is active afterwards, and ErrPeerHeard, with the state as
// before, if the peer was heard within Options.Timeout, or this node has not run for that
// long.
func (n *Node) Promote(ctx context.Context) error {
	m, err := n.do(ctx, election.Promote)
	if err == nil && m.State != StateActive {
		err = ErrPeerHeard
	}
	return err
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
	s.Refused, s.Peer.Down = n.refused.Load(), n.down.Load()
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
