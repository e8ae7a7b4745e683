package chp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/patterns/binarystar"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// pair is what a server of a pair has besides: the node that knows which of the two is
// active, and the connection to the other one.
//
// A goroutine (see run) makes the server do what the node says. Until it has, the
// server is passive: sequencer.passive is what counts for each update.
type pair struct {
	server   *Server
	timeout  time.Duration
	security func() sockets.Security // of connections to the other server; a function, because printing one shows no secrets
	bound    func() sockets.Security // of the endpoint of the state
	thisRun  uint64                  // tells this run of the server from others
	peerKey  zmtp.PublicKey          // with CURVE the other server's key, else zero
	node     *binarystar.Node
	sending  sync.WaitGroup // goroutines of followings
	changed  chan struct{}  // wakes run
	copied   atomic.Bool    // this server has a copy of the map, or its own
	drained  atomic.Bool    // it hands over to one that has all it has, so its map is a copy
	active   atomic.Bool    // the server serves
	follows  atomic.Bool    // the server is passive, and follows
	began    time.Time
	diverged divergence   // for what follows the active server
	asked    atomic.Int64 // when a client last asked while the server did not serve, on clock

	voting sync.Mutex
	parked []request // of clients that wait for this server to become active
}

const (
	// maxParked bounds the requests that wait, and maxParkedEach those of one client.
	// The oldest go first.
	maxParked     = 4096
	maxParkedEach = 64
	// looksPerTimeout is how often within the time-out run looks at the other server.
	looksPerTimeout = 20
)

// newPair makes the pair's part of a server. The node is made by start.
func newPair(s *Server, o ServerOptions) *pair {
	q := &s.sequencer
	q.passive, q.acks = true, o.Pair.Acks
	q.tail.on, q.tail.size = true, tailBytes
	q.early.timeout = o.Pair.Timeout
	return &pair{
		server: s, began: time.Now(), timeout: o.Pair.Timeout, changed: make(chan struct{}, 1),
		security: func() sockets.Security { return o.Pair.PeerSecurity },
		bound:    func() sockets.Security { return o.Security },
		peerKey:  o.Pair.PeerSecurity.CurveServerKey,
		thisRun:  rand.Uint64() | 1, // 0 is none
	}
}

// start makes the node: the other server hears of this one from now on.
func (p *pair) start(ctx context.Context) error {
	s, o := p.server, p.server.opts.Pair
	q := &s.sequencer
	role := binarystar.RolePrimary
	if o.Backup {
		role = binarystar.RoleBackup
	}
	options := binarystar.Options{
		Role: role, Bind: o.State, Peer: o.PeerState, Interval: o.Interval, Timeout: o.Timeout,
		BindSecurity: p.bound(), PeerSecurity: p.security(),
		Payload: func() []byte {
			q.mu.Lock()
			defer q.mu.Unlock()
			return appendStanding(nil, standing{q.newest, p.thisRun, q.source})
		},
		Compare: compareStandings,
		Lost:    hasLost,
		Copied:  hasCopied,
	}
	if q.disk.on() {
		options.Epoch = q.disk.log.Epoch()
		options.StoreEpoch = q.disk.log.SetEpoch
	}
	var err error
	if p.node, err = binarystar.New(ctx, options); err != nil {
		return &ListenError{o.State, err}
	}
	return nil
}

// lookEvery is how often run looks at the other server.
func (p *pair) lookEvery() time.Duration { return max(p.timeout/looksPerTimeout, time.Millisecond) }

// look wakes run.
func (p *pair) look() { signal(p.changed) }

// run does what the node says, until the context ends.
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
	sameRole := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.node.Done():
			return p.node.Err()
		case <-ticker.C:
			p.vote(ctx)
			p.judge(true)
			p.forget()
			continue
		case <-p.changed:
			p.judge(false)
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
			s.log.Warn("state changed", "state", status.State.String(), "reason", status.Reason.String(), "epoch", status.Epoch)
			now, epoch = status.State, status.Epoch
		}
		switch now {
		case binarystar.StateActive:
			stop()
			following.Wait()
			stop = func() {}
			p.follows.Store(false)
			p.lead(ctx, epoch)
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

// warnRole logs that the other server has this server's role, which is a mistake in the
// set-up, or that it no longer has.
func (p *pair) warnRole(same bool) {
	o := p.server.opts.Pair
	role := binarystar.RolePrimary
	if o.Backup {
		role = binarystar.RoleBackup
	}
	if same {
		p.server.log.Error("the server at the other one's state endpoint has the same role as this one, or is this server itself: a pair needs one primary and one backup",
			"role", role.String(), "state", p.node.Endpoint(), "peer", o.PeerState)
		return
	}
	p.server.log.Info("the other server has the other role")
}

// lead makes the server the active one, in a new reign. If it is active already, only
// the reign is new.
func (p *pair) lead(ctx context.Context, epoch uint64) {
	s := p.server
	q := &s.sequencer
	q.mu.Lock()
	q.reign = newReign(epoch)
	early := 0
	if q.passive {
		q.last.Store(max(q.last.Load(), firstSequence(time.Now())))
		q.published.Store(q.last.Load())
		q.passive = false
		early = q.acceptEarly()
	}
	q.halt(false)
	q.mu.Unlock()
	if early > 0 {
		s.log.Info("applied updates that the previous active server had not published", "updates", early)
	}
	p.drained.Store(false)
	p.copied.Store(true)
	p.active.Store(true)

	p.voting.Lock()
	parked := p.parked
	p.parked = nil
	p.voting.Unlock()
	for _, r := range parked {
		_ = s.snapshots.add(ctx, r) // the client is gone, or asks for too much
	}
}

// yield makes the server a passive one: it takes and publishes nothing more, and its
// clients have to go to the other one.
func (p *pair) yield() {
	q := &p.server.sequencer
	was := p.active.Swap(false)
	q.mu.Lock()
	q.passive = true
	for !q.held.empty() {
		q.held.drop() // never published
	}
	q.commits.peer = false
	q.halt(false)
	f := q.follower
	q.follower = nil
	q.tail.most = 0
	q.mu.Unlock()
	if f != nil {
		f.cancel()
		f.peer.Disconnect(errNotActive)
	}
	if was {
		p.server.members.disconnectAll(errNotActive)
	}
	// Only now: snapshots and progress that wait for the updates above, which are
	// given up, find that their clients have gone.
	q.mu.Lock()
	q.published.Store(q.last.Load())
	q.wakeWaiters()
	q.mu.Unlock()
}

// disconnected notes that a connection has ended.
func (p *pair) disconnected(peer *sockets.Peer) {
	q := &p.server.sequencer
	q.mu.Lock()
	f := q.follower
	if f != nil && f.peer == peer {
		f.gone = true
		f.cancel()
	}
	q.mu.Unlock()
	p.voting.Lock()
	p.parked = slices.DeleteFunc(p.parked, func(r request) bool { return r.peer == peer })
	p.voting.Unlock()
}

// judge gives up waiting for a follower that says that it ends, or has taken nothing
// for the time-out. One to which nothing at all could be sent for SnapshotTimeout is
// disconnected: it may hold a cut of the map.
//
// The time is counted in looks: while this process did not run, the other server may
// have become active, and then this one must not publish what only it has. It has
// the time-out to hear of that.
func (p *pair) judge(look bool) {
	s := p.server
	q := &s.sequencer
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.follower
	if f == nil {
		return
	}
	if look && !f.gone && f.standsStill(s.opts.SnapshotTimeout, p.lookEvery()) {
		f.gone = true
		f.cancel()
		f.peer.Disconnect(errStuck)
		s.log.Warn("disconnected the other server, which does not read", "remote", f.peer.RemoteAddr())
	}
	switch {
	case f.have >= q.newest.last && !f.gone: // what waits, waits for the disk
		f.idle = 0
	case look:
		f.idle++
	}
	if look && f.hasMap && !q.commits.peer {
		f.behind++
	}
	if !q.commits.peer || !f.bye && f.idle <= looksPerTimeout {
		return
	}
	q.alone()
	s.log.Warn("publishing updates without the other server")
}

// vote votes for this server if a client waits for it, or has asked for it lately. One that
// asked before the other server was heard last is no witness of that one's silence.
func (p *pair) vote(ctx context.Context) {
	if p.active.Load() || !p.mayServe() {
		return
	}
	p.voting.Lock()
	waits := len(p.parked) > 0
	p.voting.Unlock()
	heard := time.Duration(0)
	if peer := p.node.Peer(); peer.State != 0 {
		heard = clock() - time.Since(peer.Heard)
	}
	if asked := time.Duration(p.asked.Load()); !waits && (asked == 0 || asked < heard || clock()-asked > 2*p.timeout) {
		return
	}
	_, _ = p.node.Vote(ctx) // run hears of the result
}

// mayServe says whether the server has data to serve with: a passive one that has not
// yet copied the active one's map has none. A server that has just started, perhaps
// with an empty map, gives the other one some time to tell that it is there.
func (p *pair) mayServe() bool {
	if p.node.State() == binarystar.StatePassive {
		return p.copied.Load()
	}
	return time.Since(p.began) > max(startTimeouts*p.timeout, startLeast)
}

// A server takes over from one of which it has heard nothing since it started after
// startTimeouts times the time-out, and not before startLeast.
const (
	startTimeouts = 3
	startLeast    = time.Second
)

// newReign returns the id of a reign of the map: the epoch of the node, and a
// random part. Two servers that do not hear each other can begin a reign of the same
// epoch, and what one of them does must not be taken for what the other one does.
func newReign(epoch uint64) uint64 {
	return epoch<<reignBits | rand.Uint64()&(1<<reignBits-1)
}

// reignBits is the size of the random part.
const reignBits = 24

// epochOf returns the epoch of a reign.
func epochOf(reign uint64) uint64 { return reign >> reignBits }

// park keeps the request of a client while the server does not serve, and counts it
// as a vote.
func (p *pair) park(ctx context.Context, r request) error {
	p.asked.Store(int64(clock()))
	p.voting.Lock()
	if p.active.Load() { // since the caller has looked: lead may have taken parked already
		p.voting.Unlock()
		return p.server.snapshots.add(ctx, r)
	}
	if !p.keep(r) {
		p.voting.Unlock()
		return errTooManyRequests
	}
	p.voting.Unlock()
	if r.want.full {
		_ = p.server.router.SendWire(ended, r.peer, standbyWire, 1, nil) // as far as there is room
	}
	p.vote(ctx)
	return nil
}

// keep adds a request to those that wait, or returns false if its client has too many
// there. voting must be held.
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

// handover hands over to the other server: that one is given everything, and then
// becomes active. When little is left to give, this one takes no more: updates that come
// then wait, and if the other one does not become active, they are taken.
func (p *pair) handover(ctx context.Context) error {
	q := &p.server.sequencer
	p.awaitNews(ctx)
	q.mu.Lock()
	f, err := q.successor()
	q.mu.Unlock()
	if err != nil {
		return err
	}
	near := func() bool { return q.commits.peer || q.acks == 1 && q.tail.lag(f.position) <= maxHeld }
	if err := p.drain(ctx, f, near); err != nil {
		return fmt.Errorf("chp: handover failed: %w", err)
	}
	q.mu.Lock()
	if f, err = q.successor(); err == nil {
		q.halt(true)
	}
	q.mu.Unlock()
	if err != nil {
		return err
	}
	if err = p.drain(ctx, f, func() bool { return f.have == q.newest.last }); err == nil {
		p.drained.Store(true)
		soon, cancel := context.WithTimeout(ctx, max(2*p.timeout, drainLeast))
		err = p.node.Handover(soon) // it may have ended just now
		cancel()
	}
	if err == nil {
		return nil // updates wait until run has called yield
	}
	if p.node.State() == binarystar.StateActive { // otherwise run calls yield or lead
		p.drained.Store(false)
		q.mu.Lock()
		q.halt(false)
		q.mu.Unlock()
	}
	return fmt.Errorf("chp: handover failed: %w", err)
}

// awaitNews waits until the node has heard that the other server is passive, if it
// follows: that may come later than its acknowledgements, though not by more than the
// time-out.
func (p *pair) awaitNews(ctx context.Context) {
	q := &p.server.sequencer
	for end := time.Now().Add(p.timeout); time.Now().Before(end); {
		q.mu.Lock()
		f := q.follower
		follows := !q.passive && f != nil && !f.gone && !f.bye
		q.mu.Unlock()
		if !follows || p.node.Peer().State == binarystar.StatePassive || !pause(ctx, time.Millisecond) {
			return
		}
	}
}

// forget ends early updates that are too old.
func (p *pair) forget() {
	q := &p.server.sequencer
	heard := time.Duration(0)
	if peer := p.node.Peer(); peer.State == binarystar.StateActive {
		heard = clock() - time.Since(peer.Heard)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.early.expire(clock(), heard)
}

// successor returns the follower, or why this server cannot hand over to it. mu must be
// held.
func (q *sequencer) successor() (*following, error) {
	f := q.follower
	switch {
	case q.passive:
		return nil, binarystar.ErrNotActive
	case q.halted:
		return nil, errHandover
	case f == nil || f.gone || f.bye:
		return nil, binarystar.ErrNoSuccessor
	}
	return f, nil
}

// drain waits until a follower has the map, and has, which is called with mu held, says
// that it has enough of what follows. One that has gone, or takes nothing for the
// time-out, or for drainLeast if that is longer, is given up. The time is counted in
// looks, as in judge.
func (p *pair) drain(ctx context.Context, f *following, has func() bool) error {
	q := &p.server.sequencer
	have, sends, idle := int64(-1), uint64(0), time.Duration(0)
	for {
		q.mu.Lock()
		if n := f.sends.Load(); f.have != have || n != sends {
			have, sends, idle = f.have, n, 0
		}
		done, gone := f.hasMap && has(), f.gone || f.bye || q.follower != f
		q.mu.Unlock()
		switch {
		case done:
			return nil
		case gone || idle > max(p.timeout, drainLeast):
			return binarystar.ErrNoSuccessor
		case !pause(ctx, drainLook):
			return ctx.Err()
		}
		idle += drainLook
	}
}

const (
	drainLeast = time.Second
	drainLook  = time.Millisecond
)

// shutdown prepares the end of the server: an active one hands over, if the other one has
// the map or is being sent it, so that clients need not wait until it is found to be
// silent.
func (p *pair) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for p.active.Load() {
		err := p.handover(ctx)
		if errors.Is(err, errHandover) && pause(ctx, drainLook) {
			continue // one is under way, which may fail
		}
		if err != nil {
			p.server.log.Info("stopping without a handover", "error", err)
		}
		return
	}
}

// shutdownTimeout bounds the handover of a server that ends.
const shutdownTimeout = 8 * time.Second

// close ends the node, after run and what reads requests have ended.
func (p *pair) close() {
	if p == nil {
		return
	}
	p.sending.Wait() // Serve's context has ended
	if p.node != nil {
		_ = p.node.Close()
	}
}
