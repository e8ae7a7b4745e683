package chp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/journal"
	pairjournal "clustermap/chp/internal/journal/pair"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/snapshot"
	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/mutate"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// pair is the part of a server that belongs to a pair: the node that decides which of
// the two servers is active, and the connection to the other one.
//
// The goroutine run carries out the decisions of the node. Until then the server is
// passive: the sequencer decides for each update.
type pair struct {
	server   *Server
	timeout  time.Duration
	security func() sockets.Security // of connections to the other server; a function, because printing one shows no secrets
	bound    func() sockets.Security // of the state endpoint
	thisRun  uint64                  // identifies this run of the server
	peerKey  zmtp.PublicKey          // the other server's key with CURVE, else zero
	node     *binarystar.Node
	sending  sync.WaitGroup // goroutines of followings, and those that ask the other server
	changed  chan struct{}  // wakes run
	copied   atomic.Bool    // this server has a copy of the active server's map, or is active itself
	drained  atomic.Bool    // it hands over to a server that has all updates, so its own map is a copy
	active   atomic.Bool    // the server is active
	warned   atomic.Bool    // it has warned that it publishes updates without the other one
	follows  atomic.Bool    // the server is passive and follows the active one
	began    time.Time
	diverged divergence // the last report; owned by the goroutine that follows

	// Guarded by the sequencer's mutex.
	journal   *pairjournal.Journal // what the other server has; also the sequencer's journal
	following *following           // the other server, or nil if it does not follow

	// Owned by run.
	isolation isolation
	vigil     vigil      // of a backup that has not heard its primary
	reads     uint64     // what had arrived at the last look
	answers   chan reply // of the other server, when it was asked; capacity 1

	asked atomic.Int64 // when a client last sent a request while the server was not active, on clock

	proofs proofs // of who may follow, without CURVE

	votes  atomic.Bool // the other server is asked, because a client has voted
	voting sync.Mutex
	parked []request // of clients that wait for this server to become active
}

const (
	// maxParked bounds the parked requests, and maxParkedEach those of one client.
	// Beyond maxParked the oldest is dropped.
	maxParked     = 4096
	maxParkedEach = 64
	// looksPerTimeout is the number of looks at the other server per time-out.
	looksPerTimeout = 20
)

// newPair returns the pair part of a server. start creates the node.
func newPair(s *Server, o ServerOptions) *pair {
	p := &pair{
		server: s, began: time.Now(), timeout: o.Pair.Timeout, changed: make(chan struct{}, 1), answers: make(chan reply, 1),
		security: func() sockets.Security { return o.Pair.PeerSecurity },
		bound:    func() sockets.Security { return o.Security },
		peerKey:  o.Pair.PeerSecurity.CurveServerKey,
		thisRun:  rand.Uint64() | 1, // 0 means no run
	}
	s.sequencer.Wrap(func(local journal.Journal) journal.Journal {
		p.journal = pairjournal.New(local, o.Pair.Acks, looksPerTimeout)
		return p.journal
	})
	p.proofs.init(o.Pair.Secret)
	return p
}

// start starts the node: from here on the other server receives this one's state.
func (p *pair) start(ctx context.Context) error {
	s, o := p.server, p.server.opts.Pair
	role := binarystar.RolePrimary
	if o.Backup {
		role = binarystar.RoleBackup
	}
	options := binarystar.Options{
		Role: role, Bind: o.State, Peer: o.PeerState, Interval: o.Interval, Timeout: o.Timeout,
		BindSecurity: p.bound(), PeerSecurity: p.security(),
		Payload: p.standing,
		Valid:   validStanding,
		Compare: compareStandings,
		Copied:  hasCopied,

		Metadata: p.proofs.announce(), Monitor: s.watchState,
	}
	if log := s.opts.Log; log != nil {
		// An earlier version took any epoch for true.
		options.Epoch = min(log.Epoch(), binarystar.MaxEpoch)
		options.StoreEpoch = log.SetEpoch
	}
	var err error
	if p.node, err = binarystar.New(ctx, options); err != nil {
		return &ListenError{o.State, err}
	}
	return nil
}

// standing returns the payload of this server's state messages.
func (p *pair) standing() []byte {
	accepted, source := p.server.sequencer.Standing()
	return appendStanding(nil, standing{accepted, p.thisRun, source})
}

// lookEvery returns the interval at which run looks at the other server.
func (p *pair) lookEvery() time.Duration { return max(p.timeout/looksPerTimeout, time.Millisecond) }

// look makes run look at the other server now.
func (p *pair) look() { wake.Signal(p.changed) }

// run carries out the decisions of the node, until the context ends.
func (p *pair) run(ctx context.Context) error {
	s := p.server
	states, err := p.node.Subscribe()
	if err != nil {
		return err
	}
	defer states.Close()
	ticker := time.NewTicker(p.lookEvery())
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
			p.waits()
			p.judge(ctx, true)
			s.examineAll(true)
			p.forget()
			if n := p.node.Status().Refused; n > 2*refused {
				s.log.Warn("refused state messages, or their epochs, that cannot be the other server's", "peer_state", s.opts.Pair.PeerState, "messages", n)
				refused = n
			}
			continue
		case a := <-p.answers:
			p.answered(ctx, a)
			continue
		case <-p.changed:
			p.judge(ctx, false)
			s.examineAll(false)
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
			s.log.Log(ctx, changeLevel(status.Reason), "state changed", "state", status.State.String(), "reason", status.Reason.String(), "epoch", status.Epoch)
			// Who promotes a server says that the other one is gone, as its silence does.
			tookOver = now == binarystar.StatePassive || status.Reason == binarystar.ReasonPromoted || now == binarystar.StateActive && tookOver
			if now == binarystar.StatePassive && status.State == binarystar.StateActive && status.Reason == binarystar.ReasonElected {
				s.handovers.received.Store(int64(timer.Now()))
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
			p.lead(ctx, took)
		case binarystar.StatePassive:
			p.yield()
			stop()
			following.Wait()
			if !p.drained.Swap(false) {
				p.copied.Store(false)
			}
			follow, cancel := context.WithCancel(ctx)
			stop = cancel
			p.follows.Store(true)
			following.Go(func() { s.follow(follow, ctx) })
		default:
			p.follows.Store(false)
			p.yield()
		}
	}
}

// warnRole logs that the other server has this server's role, which is a configuration
// error, or no longer has it.
func (p *pair) warnRole(same bool) {
	o := p.server.opts.Pair
	role := binarystar.RolePrimary
	if o.Backup {
		role = binarystar.RoleBackup
	}
	if same {
		p.server.log.Error("the server at the other one's state endpoint has the same role as this one, or is this server itself: a pair needs one primary and one backup",
			"role", role.String(), "state", p.node.Endpoint(), "peer_state", o.PeerState)
		return
	}
	p.server.log.Info("the other server has the other role")
}

// lead makes the server active. If it is active already, nothing changes. took is
// its epoch if it was passive before, else 0.
func (p *pair) lead(ctx context.Context, took uint64) {
	s := p.server
	s.sequencer.Lead(took, p.isolation.holds(), order.FirstSequence(time.Now()), s.opts.ExpiryGrace)
	p.hold()
	p.drained.Store(false)
	p.copied.Store(true)
	p.active.Store(true)

	p.voting.Lock()
	parked := p.parked
	p.parked = nil
	p.voting.Unlock()
	for _, r := range parked {
		_ = s.snapshots.Add(ctx, r.peer, r.want) // the client is gone, or asks for too much
	}
}

// yield makes the server passive: it no longer accepts or publishes updates, and
// disconnects its clients so that they change to the other server.
func (p *pair) yield() {
	q := &p.server.sequencer
	was := p.active.Swap(false)
	q.Yield()
	var f *following
	q.Between(func(*order.Moment) {
		p.journal.Yield()
		f, p.following = p.following, nil
	})
	if f != nil {
		f.cancel()
		f.peer.Disconnect(order.ErrNotActive)
	}
	if was {
		p.server.members.DisconnectAll(order.ErrNotActive)
	}
	// After the clients are disconnected: this ends the waits of progress reports for held
	// updates.
	q.Wake()
}

// disconnected handles the end of a connection.
func (p *pair) disconnected(peer *sockets.Peer) {
	p.server.sequencer.Between(func(*order.Moment) {
		if f := p.following; f != nil && f.peer == peer {
			p.journal.Lose(f.to)
			f.cancel()
		}
	})
	p.proofs.forget(peer)
	p.voting.Lock()
	p.parked = slices.DeleteFunc(p.parked, func(r request) bool { return r.peer == peer })
	p.voting.Unlock()
}

// judge stops waiting for a follower that has announced its end or has acknowledged
// nothing for the time-out. A follower to which nothing could be sent for
// SnapshotTimeout is disconnected, because it may hold a cut of the map. look reports
// that the interval between looks has passed.
//
// Time is counted in looks. If this process was stopped, the other server may have
// become active, and this one must not publish updates that only it has. It then has
// the time-out to receive the other's state. The same holds for the time in which this
// server may have been isolated, and updates are held.
func (p *pair) judge(ctx context.Context, look bool) {
	p.server.sequencer.Between(func(now *order.Moment) { p.judgeNow(ctx, look, now.Newest.Last) })
	p.server.sequencer.Committed()
}

// judgeNow is judge between two batches, of which the last one ends with the update last.
func (p *pair) judgeNow(ctx context.Context, look bool, last int64) {
	s := p.server
	f := p.following
	if f == nil {
		return
	}
	if look && f.to.Progress != pairjournal.ProgressLost && f.stall.look(s.opts.SnapshotTimeout, p.lookEvery()) {
		p.journal.Lose(f.to)
		f.cancel()
		f.peer.Disconnect(errStuck)
		s.log.Warn("disconnected the other server, which does not read", "remote", f.peer.RemoteAddr())
	}
	p.journal.Look(last, look, !p.isolation.holds())
	if !p.journal.Waits() {
		return
	}
	left := f.to.Progress == pairjournal.ProgressLeft
	alone, ask := left, false
	if !alone {
		alone, ask = p.isolation.overdue(f.to.Idle)
	}
	if ask {
		p.ask(ctx)
	}
	if !alone {
		return
	}
	level := slog.LevelWarn
	if left {
		level = slog.LevelInfo // it was stopped
	}
	p.warned.Store(!left)
	// First, so that the log has it even if this process ends now.
	s.log.Log(context.Background(), level, "publishing updates without the other server")
	p.journal.Alone()
}

// changeLevel returns the level at which a change of state is logged. Failures of the
// other server and of the connection to it are warnings.
func changeLevel(r binarystar.Reason) slog.Level {
	if r == binarystar.ReasonPeerSilent || r == binarystar.ReasonPeerNewer {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// vote votes for this server if a client waits for it or has recently sent it a
// request. A request from before the other server was last heard says nothing about
// that server's silence.
//
// Before this server takes over it asks the other one on a new connection: if this one was
// cut off, clients may reach it before it hears the other one, which would then yield what
// it has accepted meanwhile.
func (p *pair) vote(ctx context.Context) {
	if p.active.Load() || !p.mayServe() || !p.node.CanTakeOver() {
		return
	}
	p.voting.Lock()
	waits := len(p.parked) > 0
	p.voting.Unlock()
	heard := time.Duration(0)
	if peer := p.node.Peer(); peer.State != 0 {
		heard = timer.At(peer.Heard)
	}
	if asked := time.Duration(p.asked.Load()); !waits && (asked == 0 || asked < heard || timer.Now()-asked > 2*p.timeout) {
		return
	}
	if p.votes.Swap(true) {
		return
	}
	p.sending.Go(func() {
		defer p.votes.Store(false)
		if p.probe(ctx) != nil && p.mayServe() {
			_, _ = p.node.Vote(ctx) // run receives the result
		}
	})
}

// mayServe reports whether the server may become active. A passive server must have
// copied the active one's map. A server that has just started, perhaps with an empty
// map, gives the other one time to announce itself.
func (p *pair) mayServe() bool {
	if p.node.State() == binarystar.StatePassive {
		return p.copied.Load()
	}
	return p.waitsFor() < 0
}

// waitsFor is what is left of the time that a server which has started gives the other one to
// be heard.
func (p *pair) waitsFor() time.Duration {
	return max(startTimeouts*p.timeout, startLeast) - time.Since(p.began)
}

// A server that has heard nothing of the other one since it started may become active
// after startTimeouts times the time-out, and not before startLeast.
const (
	startTimeouts = 3
	startLeast    = time.Second
)

// park keeps a client's request while the server is not active, and counts it as a
// vote.
func (p *pair) park(ctx context.Context, r request) error {
	p.asked.Store(int64(timer.Now()))
	p.voting.Lock()
	if p.active.Load() { // since the caller's check; lead may have served parked already
		p.voting.Unlock()
		return p.server.snapshots.Add(ctx, r.peer, r.want)
	}
	if !p.keep(r) {
		p.voting.Unlock()
		return snapshot.ErrTooMany
	}
	p.voting.Unlock()
	if r.want.Full {
		_ = hooks.SendWireTo(wake.Ended, p.server.router, r.peer, wire.AppendStandby(nil), 1, nil) // dropped if there is no room
	}
	p.vote(ctx)
	return nil
}

// keep parks a request, or returns false if its client has too many. voting must be
// held.
func (p *pair) keep(r request) bool {
	own := 0
	for _, other := range p.parked {
		if other.peer == r.peer {
			own++
		}
	}
	if own >= maxParkedEach {
		return false
	}
	if len(p.parked) == maxParked {
		p.parked = slices.Delete(p.parked, 0, 1)
	}
	p.parked = append(p.parked, r)
	return true
}

// handover makes the other server active. First the other server receives all updates.
// When few are missing, this server stops accepting: new updates wait, and are accepted
// if the handover fails.
func (p *pair) handover(ctx context.Context) error {
	q := &p.server.sequencer
	p.awaitNews(ctx)
	f, err := p.successor()
	if err != nil {
		return err
	}
	near := func(*order.Moment) bool { return p.journal.Near(f.to, order.MaxHeld) }
	if err := p.drain(ctx, f, near); err != nil {
		return fmt.Errorf("chp: handover failed: %w", err)
	}
	if f, err = p.successor(); err != nil {
		return err
	}
	if !q.Halt(true) {
		_, err = p.successor()
		return cmp.Or(err, errHandover)
	}
	if err = p.drain(ctx, f, func(now *order.Moment) bool { return f.to.Have == now.Newest.Last }); err == nil {
		p.drained.Store(true)
		soon, cancel := context.WithTimeout(ctx, max(2*p.timeout, drainLeast))
		err = p.node.Handover(soon) // the other server may have ended just now
		cancel()
	}
	if err == nil {
		return nil // updates wait until run has called yield
	}
	if p.node.State() == binarystar.StateActive { // otherwise run calls yield or lead
		p.drained.Store(false)
		q.Halt(false)
	}
	return fmt.Errorf("chp: handover failed: %w", err)
}

// awaitNews waits until the node knows that a following server is passive. That state
// can arrive later than its acknowledgements, by up to the time-out. What the node knows
// can also be from before the other server has restarted.
func (p *pair) awaitNews(ctx context.Context) {
	q := &p.server.sequencer
	for end := time.Now().Add(p.timeout); time.Now().Before(end); {
		follows := false
		q.Between(func(now *order.Moment) { follows = !now.Passive && p.following != nil && p.following.to.Live() })
		peer := p.node.Peer()
		known := peer.Alive && peer.State == binarystar.StatePassive
		if !follows || known || !wake.Pause(ctx, time.Millisecond) {
			return
		}
	}
}

// forget removes early updates that are too old.
func (p *pair) forget() {
	heard := time.Duration(0)
	if peer := p.node.Peer(); peer.State == binarystar.StateActive {
		heard = timer.At(peer.Heard)
	}
	p.server.sequencer.ExpireEarly(heard)
}

// successor returns the follower, or an error if this server cannot hand over to it.
func (p *pair) successor() (f *following, err error) {
	p.server.sequencer.Between(func(now *order.Moment) {
		switch f = p.following; {
		case now.Passive:
			err = binarystar.ErrNotActive
		case now.Halted:
			err = errHandover
		case f == nil || !f.to.Live():
			err = binarystar.ErrNoSuccessor
		}
	})
	return f, err
}

// drain waits until a follower has the map and has returns true; has is called
// between two batches. It fails if the follower is gone or makes no progress for the time-out, or for
// drainLeast if that is longer. Time is counted in looks, as in judge: the time between two
// looks counts up to drainGap.
func (p *pair) drain(ctx context.Context, f *following, has func(*order.Moment) bool) error {
	q := &p.server.sequencer
	have, sends, idle := int64(-1), uint64(0), time.Duration(0)
	for last := time.Now(); ; {
		var done, gone bool
		q.Between(func(now *order.Moment) {
			if n := f.stall.sends.Load(); f.to.Have != have || n != sends {
				have, sends, idle = f.to.Have, n, 0
			}
			done, gone = f.to.HasMap() && has(now), !f.to.Live() || p.following != f
		})
		switch {
		case done:
			return nil
		case gone || idle > max(p.timeout, drainLeast):
			return binarystar.ErrNoSuccessor
		case !wake.Pause(ctx, drainLook):
			return ctx.Err()
		}
		now := time.Now()
		idle += min(now.Sub(last), drainGap)
		last = now
	}
}

const (
	drainLeast = time.Second
	drainLook  = time.Millisecond
	drainGap   = 25 * time.Millisecond // a busy machine looks later than it should
)

// shutdown hands over before an active server ends, if the other one has the map or is
// receiving it. So clients need not wait until the server is considered dead.
func (p *pair) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for p.active.Load() {
		err := p.handover(ctx)
		if errors.Is(err, errHandover) && wake.Pause(ctx, drainLook) {
			continue // another one is in progress, and may fail
		}
		if err != nil {
			p.server.log.Info("stopping without a handover", "error", err)
		}
		return
	}
}

// shutdownTimeout bounds the handover of a server that ends.
const shutdownTimeout = 8 * time.Second

// close closes the node. run and runRequests must have returned.
func (p *pair) close() {
	if p == nil {
		return
	}
	p.sending.Wait() // Serve's context has ended
	if p.node != nil {
		_ = p.node.Close()
	}
}
