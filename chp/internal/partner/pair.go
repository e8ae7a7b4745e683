// Package partner is one server of a pair: which of the two is active, and how the other one
// follows that.
//
//	Pair      carries out what the election (patterns/binarystar) decides: lead, or yield and
//	          follow; hands over; asks the other server when nothing is heard
//	isolation whether this server may have been cut off: a machine of looks, without a clock
//	proofs    who may follow
//	presence  whether somebody is at the other server's addresses who is not heard
//	leader    the active side: sends what the journal of the pair says
//	copier    the passive side: applies what the active server sends
//	parked    the requests of clients that wait until this server is active
//
// The server gives its sequencer, its sockets and a few functions, and calls what the messages
// of clients and of the other server ask for. What the two servers must both
// have is committed by chp/internal/journal/pair.
package partner

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/journal"
	pairjournal "clustermap/chp/internal/journal/pair"
	"clustermap/chp/internal/order"
	"clustermap/internal/hooks"
	"clustermap/internal/lograte"
	"clustermap/internal/mutate"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Pair is the part of a server that belongs to a pair: the node that decides which of
// the two servers is active, and the connection to the other one.
//
// The goroutine of Run carries out the decisions of the node. Until then the server is
// passive: the sequencer decides for each update.
type Pair struct {
	o    Options
	node *binarystar.Node
	// Only tests change these.
	Began time.Time     // when the server was made
	News  time.Duration // how long a handover waits for the other server's state

	leader   leader
	copier   copier
	proofs   proofs // of who may follow
	presence presence
	parked   parked // requests of clients

	asking   sync.WaitGroup // goroutines that ask the other server
	changed  chan struct{}  // wakes Run
	listens  atomic.Bool    // there is a node
	drained  atomic.Bool    // it hands over to a server that has all updates, so its own map is a copy
	active   atomic.Bool    // the server is active
	follows  atomic.Bool    // the server is passive and follows the active one
	tookOver atomic.Uint64  // times that it was passive and became active
	votes    atomic.Bool    // the other server is asked, because a client has voted

	mu    sync.Mutex // of Lead and stop
	ended uint64     // epoch of the last reign of this server that has ended

	received atomic.Int64 // when the other server last handed over to this one, on clock; 0 if never

	// Owned by Run.
	isolation isolation
	vigil     lograte.Limiter // of a backup that has not heard its primary
	reads     uint64          // what had arrived at the last look
	answers   chan reply      // of the other server, when it was asked; capacity 1
}

// New returns the pair part of a server, and puts its journal on top of that of the sequencer.
// Listen creates the node.
func New(o Options) *Pair {
	p := &Pair{
		o: o, Began: time.Now(), News: o.Timeout,
		changed: make(chan struct{}, 1), answers: make(chan reply, 1),
		vigil: lograte.Limiter{First: startTimeouts * o.Timeout, Most: vigilMost, Size: 1},
	}
	p.leader = leader{Options: &p.o, run: rand.Uint64() | 1, every: max(o.Timeout/LooksPerTimeout, time.Millisecond)} // 0 means no run
	o.Order.Wrap(func(local journal.Journal) journal.Journal {
		p.leader.journal = pairjournal.New(local, o.Acks, LooksPerTimeout)
		return p.leader.journal
	})
	p.proofs = proofs{Options: &p.o, private: newKey(), send: p.send, linked: p.look, applicants: map[*sockets.Peer]*applicant{}}
	p.presence = presence{Options: &p.o, failures: lograte.Failures(), faults: map[string]string{}}
	p.copier = copier{Options: &p.o, prove: p.proofs.prove, heard: p.heard, restored: o.Restored}
	return p
}

// Secure makes what Options.Security and PeerSecurity return now hold for connections of the node that begin later. It
// is not called during Listen.
func (p *Pair) Secure() error {
	if p.node == nil {
		return nil // Listen asks
	}
	return p.node.SetSecurity(p.o.Security(), p.o.PeerSecurity())
}

// Listen starts the node: from here on the other server receives this one's state.
func (p *Pair) Listen(ctx context.Context) error {
	options := binarystar.Options{
		Role: p.o.Role, Bind: p.o.State, Peer: p.o.PeerState, Interval: p.o.Interval, Timeout: p.o.Timeout,
		BindSecurity: p.o.Security(), PeerSecurity: p.o.PeerSecurity(),
		Payload: p.standing,
		Stop:    p.stop,
		Valid:   validStanding,
		Compare: compareStandings,
		Copied:  hasCopied,

		Metadata: map[string]string{propertyProofKey: hex.EncodeToString(p.proofs.public())}, Monitor: p.Watch,
	}
	if log := p.o.Epochs; log != nil {
		// An earlier version took any epoch for true.
		options.Epoch = min(log.Epoch(), binarystar.MaxEpoch)
		options.StoreEpoch = log.SetEpoch
	}
	var err error
	p.node, err = binarystar.New(ctx, options)
	p.listens.Store(err == nil)
	return err
}

// Watch is the monitor of the connections to both state endpoints.
func (p *Pair) Watch(e sockets.Event) {
	if e.Endpoint == p.o.PeerState {
		p.presence.watch(e)
	} else {
		p.o.PeerLog.Connection(e, "state", false)
	}
	p.proofs.watch(e)
}

// Node returns the node that decides which server is active. There is none before Listen.
func (p *Pair) Node() *binarystar.Node { return p.node }

// Journal returns what the other server has. The sequencer's mutex guards it.
func (p *Pair) Journal() *pairjournal.Journal { return p.leader.journal }

// Active reports whether the server is active.
func (p *Pair) Active() bool { return p.active.Load() }

// Status is what a pair knows of itself. It is zero before Listen.
type Status struct {
	Active, Follows bool // neither if it waits
	TakesOver       bool // it is not active, but becomes so when a client asks for the map
	Epoch           uint64
	Lag             int64  // of the other server, in updates; -1 while that does not follow, or has not the map yet
	InSync          bool   // the other server has all that is published
	Fault           string // why the other server is not heard although somebody is at its addresses, or ""
}

// Status returns the status of the pair.
func (p *Pair) Status() (st Status) {
	if !p.listens.Load() {
		return st
	}
	st.Epoch = p.node.Epoch()
	if !p.node.Peer().Alive {
		st.Fault = p.presence.fault()
	}
	st.TakesOver = p.node.CanTakeOver() && p.mayServe()
	if st.Active = p.active.Load(); !st.Active {
		st.Follows = p.follows.Load()
		return st
	}
	st.Lag = -1
	p.o.Order.Between(func(now *order.Moment) {
		if f := p.leader.journal.Follower(); f != nil && f.Live() {
			if f.HasMap() {
				st.Lag = max(now.Newest.Last-f.Have, 0)
			}
			st.InSync = p.leader.journal.Waits() && f.Have >= now.State.Terms.Newest.Last
		}
	})
	return st
}

// standing returns the payload of this server's state messages.
func (p *Pair) standing() []byte {
	accepted, source := p.o.Order.Standing()
	return appendStanding(nil, standing{accepted, p.leader.run, source})
}

// heard returns the run of the other server, or 0 if it is not known.
func (p *Pair) heard() uint64 {
	s, _ := parseStanding(p.node.Peer().Payload)
	return s.run
}

// look makes Run look at the other server now.
func (p *Pair) look() { wake.Signal(p.changed) }

// Run carries out the decisions of the node, until the context ends.
func (p *Pair) Run(ctx context.Context) error {
	states, err := p.node.Subscribe()
	if err != nil {
		return err
	}
	defer states.Close()
	ticker := time.NewTicker(p.leader.every)
	defer ticker.Stop()
	var following sync.WaitGroup
	stop := func() {}
	defer func() {
		stop()
		following.Wait()
	}()
	var now binarystar.State
	var epoch uint64
	sameRole, tookOver := false, false
	refused := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.node.Done():
			return p.node.Err()
		case <-ticker.C:
			p.vote(ctx)
			p.watch(ctx)
			if p.node.Peer().Alive {
				p.presence.heard()
			}
			p.waits(ctx)
			p.check(ctx, true)
			p.proofs.examineAll(true)
			p.forget()
			if n := p.node.Status().Refused; n > 2*refused {
				p.o.Log.Warn("refused state messages, or their epochs, that cannot be the other server's", "peer_state", p.o.PeerState, "messages", n)
				refused = n
			}
			continue
		case a := <-p.answers:
			p.answered(ctx, a)
			continue
		case <-p.changed:
			p.check(ctx, false)
			p.proofs.examineAll(false)
			continue
		case status, ok := <-states.C():
			if !ok {
				return p.node.Err()
			}
			if status.Peer.SameRole != sameRole {
				sameRole = status.Peer.SameRole
				p.warnRole(sameRole)
			}
			if status.State == now && (now != binarystar.StateActive || status.Epoch == epoch) {
				continue
			}
			p.o.Log.Log(ctx, changeLevel(status.Reason), "state changed", "state", status.State.String(), "reason", status.Reason.String(), "epoch", status.Epoch)
			// Who promotes a server says that the other one is gone, as its silence does.
			tookOver = now == binarystar.StatePassive || status.Reason == binarystar.ReasonPromoted || now == binarystar.StateActive && tookOver
			if now == binarystar.StatePassive && status.State == binarystar.StateActive && status.Reason == binarystar.ReasonElected {
				p.received.Store(int64(timer.Now()))
			}
			if now == binarystar.StateActive && p.over(epoch) {
				p.Yield() // and active again since
			}
			now, epoch = status.State, status.Epoch
		}
		switch now {
		case binarystar.StateActive:
			stop()
			following.Wait()
			stop = func() {}
			p.follows.Store(false)
			took := uint64(0)
			if tookOver || mutate.CountStarts {
				took = epoch
			}
			if tookOver {
				p.tookOver.Add(1)
			}
			p.Lead(ctx, epoch, took)
		case binarystar.StatePassive:
			p.Yield()
			stop()
			following.Wait()
			if !p.drained.Swap(false) {
				p.copier.copied.Store(false)
			}
			follow, cancel := context.WithCancel(ctx)
			stop = cancel
			p.follows.Store(true)
			following.Go(func() { p.copier.follow(follow, ctx) })
		default:
			p.follows.Store(false)
			p.Yield()
		}
	}
}

// TookOver returns how often this server was passive and became active.
func (p *Pair) TookOver() uint64 { return p.tookOver.Load() }

// warnRole logs that the other server has this server's role, which is a configuration
// error, or no longer has it.
func (p *Pair) warnRole(same bool) {
	if same {
		p.o.Log.Error("the server at the other one's state endpoint has the same role as this one, or is this server itself: a pair needs one primary and one backup",
			"role", p.o.Role.String(), "state", p.node.Endpoint(), "peer_state", p.o.PeerState)
		return
	}
	p.o.Log.Warn("the other server has the other role") // to be seen where the error was
}

// stop makes the server accept nothing more, before the other one hears that this server is no
// longer active. It is binarystar.Options.Stop.
func (p *Pair) stop(epoch uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = epoch
	p.o.Order.Yield()
}

// over reports whether a reign of this server has ended.
func (p *Pair) over(epoch uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return epoch <= p.ended
}

// Lead makes the server active in a reign, unless that is over. If it is active already, nothing
// changes. took is its epoch if it was passive before, else 0. Run calls it.
func (p *Pair) Lead(ctx context.Context, epoch, took uint64) {
	p.mu.Lock()
	over := epoch <= p.ended
	if !over {
		p.o.Order.Lead(took, p.isolation.holds(), order.FirstSequence(time.Now()), p.o.ExpiryGrace)
	}
	p.mu.Unlock()
	if over {
		return // Run hears what the server is now
	}
	p.hold()
	p.drained.Store(false)
	p.copier.copied.Store(true)
	p.active.Store(true)
	for _, r := range p.parked.take() {
		_ = p.o.Answer(ctx, r.peer, r.want) // the client is gone, or asks for too much
	}
}

// Yield makes the server passive: it no longer accepts or publishes updates, and
// disconnects its clients so that they change to the other server. Run calls it.
func (p *Pair) Yield() {
	was := p.active.Swap(false)
	p.o.Order.Yield()
	p.leader.yield()
	if was {
		p.o.Dismiss(order.ErrNotActive)
	}
	// After the clients are disconnected: this ends the waits of progress reports for held
	// updates.
	p.o.Order.Wake()
}

// Hears handles a message of the other server on the snapshot port: FOLLOW, PROOF, HAVE or
// BYE. ctx ends with the server.
func (p *Pair) Hears(ctx context.Context, peer *sockets.Peer, m zmtp.WireMessage) {
	if m.Len() != 2 {
		return
	}
	name, rest := m.Next()
	body, _ := rest.Next()
	switch string(name) {
	case nameFollow:
		if r, ok := parseFollowRequest(body); ok {
			p.proofs.apply(peer, func() { p.leader.follow(ctx, peer, r) })
		}
	case nameProof:
		p.proofs.proved(peer, body)
	case nameHave:
		if len(body) == 8 {
			p.leader.acknowledged(peer, int64(binary.BigEndian.Uint64(body)))
		}
	case nameBye:
		p.leader.leave(peer)
		p.look()
	}
}

// Disconnected handles the end of a connection of the snapshot port.
func (p *Pair) Disconnected(peer *sockets.Peer) {
	p.leader.lose(peer)
	p.proofs.forget(peer)
	p.parked.forget(peer)
}

// send sends a message to a peer, unless there is no room.
func (p *Pair) send(peer *sockets.Peer, m []byte) {
	_ = hooks.SendWireTo(wake.Ended, p.o.Router, peer, m, 1, nil)
}

// check looks at the follower. look reports that the interval between looks has passed.
func (p *Pair) check(ctx context.Context, look bool) {
	p.leader.check(look, !p.isolation.holds(), func(idle int) bool {
		alone, ask := p.isolation.overdue(idle)
		if ask {
			p.ask(ctx)
		}
		return alone
	})
}

// changeLevel returns the level at which a change of state is logged. Failures of the
// other server and of the connection to it are warnings.
func changeLevel(r binarystar.Reason) slog.Level {
	if r == binarystar.ReasonPeerSilent || r == binarystar.ReasonPeerNewer || r == binarystar.ReasonPeerMore {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// forget removes early updates that are too old.
func (p *Pair) forget() {
	heard := time.Duration(0)
	if peer := p.node.Peer(); peer.State == binarystar.StateActive {
		heard = timer.At(peer.Heard)
	}
	p.o.Order.ExpireEarly(heard)
}

// Close closes the node, if there is one. Run and the caller of Hears must have returned.
func (p *Pair) Close() {
	p.leader.running.Wait() // Serve's context has ended
	p.asking.Wait()
	if p.node != nil {
		_ = p.node.Close()
	}
}
