package chp

import (
	"context"
	"errors"
	"time"

	"clustermap/internal/mutate"
	"clustermap/internal/wake"
	"clustermap/patterns/binarystar"
)

// isolation tells an active server whether it may have been cut off from everybody.
// Then the other server may have taken over, and what this one publishes before it hears
// of that would be discarded. It is a machine without I/O and clock; time is counted in
// looks (pair.lookEvery).
//
// The silence of the other server alone says nothing: it may have ended. But if nothing
// arrives from anybody, this server may be the isolated one. It then pings its clients,
// which may only be waiting, and holds updates until something arrives, however long that
// takes, and, since the network works again, for as long as the other server needs to
// answer on a new connection. After that it knows, until the other server is heard again:
// the other server does not run, or cannot be reached.
//
// A server that was not alone before does not go on alone without such an answer, either.
type isolation struct {
	state  isolationState
	quiet  int  // looks in which nothing arrived, up to quietLooks
	fresh  int  // looks for which an answer of the other server counts
	before bool // something arrived just before the other server was asked
	other  bool // something arrived since then
}

type isolationState uint8

const (
	// isolationNone: the other server is heard, or other peers are.
	isolationNone isolationState = iota
	// isolationSuspected: nothing arrives from anybody.
	isolationSuspected
	// isolationChecking: the other server is asked.
	isolationChecking
	// isolationExcluded: the other server did not answer, though the network works.
	isolationExcluded
)

// quietLooks is the number of looks after which silence is suspicious. Updates wait
// for the other server for longer, and with the default options an idle client of this
// package sends something sooner.
const quietLooks = looksPerTimeout * 3 / 4

// checkTime returns the time that the other server has for an answer: much more than a
// network takes.
func (p *pair) checkTime() time.Duration { return max(p.timeout/4, 100*time.Millisecond) }

// sight is what a server sees in a look.
type sight struct {
	heard   bool // the other server, within little more than the interval
	down    bool // the other server's machine says that it does not run
	arrived bool // anything from anybody, or the server is busy by itself
}

// look counts a look, and reports whether to ask the other server: see answered.
func (i *isolation) look(s sight) (ask bool) {
	i.fresh = max(i.fresh-1, 0)
	switch {
	case i.state == isolationChecking: // ends with answered
		i.other = i.other || s.arrived
	case s.heard:
		i.state, i.quiet = isolationNone, 0
	case s.down:
		i.state = isolationExcluded
	case i.state == isolationExcluded:
	case s.arrived:
		suspected, again := i.state == isolationSuspected, i.before
		i.quiet = 0
		if suspected {
			// A client that never sends anything in time is heard a second time after a
			// question without an answer.
			ask, i.other = i.check(), again
		}
	case i.state == isolationNone:
		if i.quiet++; i.quiet == quietLooks {
			i.state, i.before = isolationSuspected, false
		}
	}
	return ask
}

// check begins to ask the other server, and returns false if it is asked already.
func (i *isolation) check() (ask bool) {
	ask = i.state != isolationChecking
	if ask {
		i.state, i.before, i.other = isolationChecking, i.quiet == 0, false
		i.quiet = 0
	}
	return ask
}

// answered ends a check: the other server was heard on a new connection, or its machine said
// that it does not run, or neither. The latter counts only if others were heard both before
// it was asked, so that it could have answered, and since then. It reports whether to ask
// once more.
func (i *isolation) answered(heard, down bool) (ask bool) {
	switch {
	case heard:
		i.state, i.fresh = isolationNone, looksPerTimeout
	case down, i.before && i.other:
		i.state = isolationExcluded
	case i.other:
		i.state = isolationSuspected
		ask = i.check()
	default:
		i.state = isolationSuspected
	}
	return ask
}

// holds reports whether no updates may be accepted.
func (i *isolation) holds() bool {
	return (i.state == isolationSuspected || i.state == isolationChecking) && !mutate.AcceptCutOff
}

// knows reports whether the server may go on alone: the other one has answered just now,
// so it has not taken over, or did not answer. While nothing arrives from anybody it may
// not, however long that takes: who can get an acknowledgement answers a ping or is heard
// sooner or later, and the other server may have taken over.
func (i *isolation) knows() bool {
	return i.state == isolationExcluded || i.fresh > 0 || mutate.AcceptCutOff
}

// overdue says what to do when the other server has acknowledged nothing that waits for it
// for a number of looks: to go on alone, or to ask it first.
func (i *isolation) overdue(idle int) (alone, ask bool) {
	switch {
	case idle <= looksPerTimeout:
	case i.knows():
		alone = true
	case i.state != isolationSuspected: // look asks when something arrives
		ask = i.check()
	}
	return alone, ask
}

// watch looks at what arrives, and holds updates or stops that.
func (p *pair) watch(ctx context.Context) {
	s := p.server
	peer, reads := p.node.Peer(), s.router.Reads()+s.collector.Reads()+s.publisher.Reads()
	suspected := p.isolation.state == isolationSuspected
	ask := p.isolation.look(sight{
		heard: peer.State != 0 && time.Since(peer.Heard) < s.opts.Pair.Interval+p.lookEvery(),
		down:  peer.Down,
		// A server that waits for its own disk reads nothing, and updates of this process
		// are not heard either.
		arrived: reads != p.reads || s.local.Waiting() || s.sequencer.Journal().Room(wake.Ended) != nil,
	})
	p.reads = reads
	if p.isolation.state == isolationSuspected && !suspected {
		s.pingClients()
	}
	if ask {
		p.ask(ctx)
	}
	p.hold()
}

// ask asks the other server for a sign of life on a new connection, see answered.
func (p *pair) ask(ctx context.Context) {
	if p.active.Load() {
		p.server.log.Info("updates wait until the other server has had time to answer")
	}
	p.server.pingClients()
	p.sending.Go(func() { p.answers <- reply{err: p.probe(ctx)} })
}

// probe asks the other server on a new connection, for as long as it may need to answer.
func (p *pair) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.checkTime())
	defer cancel()
	return p.node.Probe(ctx)
}

// pingClients asks the clients for a sign of life: they may only be waiting for updates
// that this server holds.
func (s *Server) pingClients() {
	s.router.Ping()
	s.collector.Ping()
	s.publisher.Ping()
}

// reply is the outcome of asking the other server whether it is there.
type reply struct {
	err  error // of Node.Probe
	last bool  // it had time to become active
}

// answered handles an answer. A server that has newer data is about to become active, and
// one that is active may accept updates until it has heard this one; then updates wait for
// that, for as long again.
func (p *pair) answered(ctx context.Context, a reply) {
	if a.err == nil && !a.last && p.node.State() == binarystar.StateActive && (p.behind() || p.node.Peer().State == binarystar.StateActive) {
		p.sending.Go(func() {
			_ = wake.Pause(ctx, p.checkTime())
			p.answers <- reply{last: true}
		})
		return
	}
	down := errors.Is(a.err, binarystar.ErrPeerDown)
	switch ask := p.isolation.answered(a.err == nil, down); {
	case ask && ctx.Err() == nil:
		p.ask(ctx)
	case !down && p.isolation.state == isolationExcluded:
		p.server.log.Warn("the other server does not answer, though others do: continuing without it")
	}
	p.hold()
}

// behind reports whether the other server has said that it has data that this one lacks.
func (p *pair) behind() bool {
	own, peer := p.standing(), p.node.Peer().Payload
	return !hasCopied(own, peer) && compareStandings(own, peer) < 0
}

// hold makes updates of an active server wait while it may be isolated. Those that
// arrived before it took over become due when they no longer wait.
func (p *pair) hold() {
	if p.node.State() != binarystar.StateActive {
		return // it has nothing to hold, or run is about to call yield
	}
	if early := p.server.sequencer.Hold(p.isolation.holds()); early > 0 {
		p.server.log.Info("applied updates that the previous active server had not published", "updates", early)
	}
}
