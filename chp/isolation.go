package chp

import (
	"context"
	"errors"
	"time"

	"clustermap/patterns/binarystar"
)

// isolation tells an active server whether it may have been cut off from everybody.
// Then the other server may have taken over, and what this one accepted before it hears
// of that would be discarded. It is a machine without I/O and clock; time is counted in
// looks (pair.lookEvery).
//
// The silence of the other server alone says nothing: it may have ended. But if nothing
// arrives from anybody, this server may be the isolated one. It then holds updates until
// something arrives, and, since the network works again, for as long as the other server
// needs to answer on a new connection. After that it knows, until the other server is
// heard again: the other server does not run, or cannot be reached.
type isolation struct {
	state isolationState
	quiet int // looks in which nothing arrived, or in isolationSuspected all looks
}

type isolationState uint8

const (
	// isolationNone: the other server is heard, or other peers are.
	isolationNone isolationState = iota
	// isolationSuspected: nothing arrives from anybody.
	isolationSuspected
	// isolationChecking: something arrived, and the other server is asked.
	isolationChecking
	// isolationExcluded: the other server did not answer, though the network works.
	isolationExcluded
)

const (
	// quietLooks is the number of looks after which silence is suspicious: a quarter of
	// the time-out. The other server, of which a message arrives each interval, cannot take
	// over earlier than an interval before the time-out.
	quietLooks = looksPerTimeout / 4
	// freezeLooks bounds the time for which updates that are accepted already wait while
	// nothing arrives: the clients may wait for them without sending anything.
	freezeLooks = 5 * looksPerTimeout
	// checkLooks is the time for an answer.
	checkLooks = looksPerTimeout / 2
)

// sight is what a server sees in a look.
type sight struct {
	heard   bool // the other server, within little more than the interval
	down    bool // the other server's machine says that it does not run
	arrived bool // anything from anybody, or an update of this process waits
}

// look counts a look, and reports whether the other server is to be asked: see answered.
func (i *isolation) look(s sight) (ask bool) {
	switch {
	case i.state == isolationChecking: // ends with answered
	case s.heard:
		*i = isolation{}
	case s.down:
		*i = isolation{state: isolationExcluded}
	case i.state == isolationExcluded:
	case s.arrived:
		ask = i.state == isolationSuspected
		*i = isolation{}
		if ask {
			i.state = isolationChecking
		}
	default:
		if i.quiet++; i.quiet >= quietLooks {
			i.state = isolationSuspected
		}
	}
	return ask
}

// answered ends a check: the other server was heard on a new connection, or was not.
func (i *isolation) answered(heard bool) {
	*i = isolation{state: isolationExcluded}
	if heard {
		i.state = isolationNone
	}
}

// holds reports whether no updates may be accepted.
func (i *isolation) holds() bool {
	return i.state == isolationSuspected || i.state == isolationChecking
}

// freezes reports whether the time for which updates wait for the other server stands
// still.
func (i *isolation) freezes() bool { return i.holds() && i.quiet < freezeLooks }

// watch looks at what arrives, and holds updates or stops that.
func (p *pair) watch(ctx context.Context) {
	s := p.server
	peer, reads := p.node.Peer(), s.router.Reads()+s.collector.Reads()+s.publisher.Reads()
	ask := p.isolation.look(sight{
		heard:   peer.State != 0 && time.Since(peer.Heard) < s.opts.Pair.Interval+p.lookEvery(),
		down:    peer.Down,
		arrived: reads != p.reads || s.local.waiting.Load() > 0,
	})
	p.reads = reads
	if ask {
		s.log.Info("something arrives after a time in which nothing did: updates wait until the other server has had time to answer")
		p.sending.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, checkLooks*p.lookEvery())
			defer cancel()
			p.answers <- reply{err: p.node.Probe(ctx)}
		})
	}
	p.hold()
}

// reply is the outcome of asking the other server whether it is there.
type reply struct {
	err  error // of Node.Probe
	last bool  // it had time to become active
}

// answered handles an answer. A server that has newer data is about to become active;
// then updates wait for that, for as long again.
func (p *pair) answered(ctx context.Context, a reply) {
	if a.err == nil && !a.last && p.node.State() == binarystar.StateActive && p.behind() {
		p.sending.Go(func() {
			_ = pause(ctx, checkLooks*p.lookEvery())
			p.answers <- reply{last: true}
		})
		return
	}
	if a.err != nil && !errors.Is(a.err, binarystar.ErrPeerDown) && ctx.Err() == nil {
		p.server.log.Warn("the other server does not answer, though others do: continuing without it")
	}
	p.isolation.answered(a.err == nil)
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
	q := &p.server.sequencer
	q.mu.Lock()
	if q.passive {
		q.mu.Unlock()
		return
	}
	hold, early := p.isolation.holds(), 0
	q.halt(haltIsolated, hold)
	if p.takesEarly && !hold {
		p.takesEarly = false
		early = q.acceptEarly()
	}
	q.mu.Unlock()
	if early > 0 {
		p.server.log.Info("applied updates that the previous active server had not published", "updates", early)
	}
}
