package partner

import (
	"context"
	"errors"
	"time"

	"clustermap/internal/wake"
	"clustermap/patterns/binarystar"
)

// checkTime returns the time that the other server has for an answer: much more than a
// network takes.
func (p *Pair) checkTime() time.Duration { return max(p.o.Timeout/4, 100*time.Millisecond) }

// watch looks at what arrives, and holds updates or stops that.
func (p *Pair) watch(ctx context.Context) {
	peer, reads := p.node.Peer(), uint64(0)
	for _, socket := range p.o.Sockets {
		reads += socket.Reads()
	}
	suspected := p.isolation.state == isolationSuspected
	ask := p.isolation.look(observation{
		heard:   peer.State != 0 && time.Since(peer.Heard) < p.o.Interval+p.leader.every,
		down:    peer.Down,
		arrived: reads != p.reads || p.o.Waits(), // the latter are not heard
		blocked: p.o.Order.Journal().Room(wake.Ended) != nil,
	})
	p.reads = reads
	if p.isolation.state == isolationSuspected && !suspected {
		p.ping()
	}
	if ask {
		p.ask(ctx)
	}
	p.hold()
}

// ask asks the other server for a sign of life on a new connection, see answered.
func (p *Pair) ask(ctx context.Context) {
	if p.active.Load() {
		p.o.Log.Info("updates wait until the other server has had time to answer")
	}
	p.ping()
	p.asking.Go(func() { p.answers <- reply{err: p.probe(ctx)} })
}

// ping asks the clients for a sign of life: they may only be waiting for updates that this
// server holds.
func (p *Pair) ping() {
	for _, socket := range p.o.Sockets {
		socket.Ping()
	}
}

// probe asks the other server on a new connection, for as long as it may need to answer.
func (p *Pair) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.checkTime())
	defer cancel()
	return p.node.Probe(ctx)
}

// reply is the outcome of asking the other server whether it is there.
type reply struct {
	err  error // of Node.Probe
	last bool  // it had time to become active
}

// answered handles an answer. A server that has newer data is about to become active, and
// one that is active may accept updates until it has heard this one; then updates wait for
// that, for as long again.
func (p *Pair) answered(ctx context.Context, a reply) {
	if a.err == nil && !a.last && p.node.State() == binarystar.StateActive && (p.behind() || p.node.Peer().State == binarystar.StateActive) {
		p.asking.Go(func() {
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
		p.o.Log.Warn("the other server does not answer, though others do: continuing without it")
	}
	p.hold()
}

// behind reports whether the other server has said that it has data that this one lacks.
func (p *Pair) behind() bool {
	own, peer := p.standing(), p.node.Peer().Payload
	return !hasCopied(own, peer) && compareStandings(own, peer) < 0
}

// hold makes updates of an active server wait while it may be isolated. Those that
// arrived before it took over become due when they no longer wait.
func (p *Pair) hold() {
	if p.node.State() != binarystar.StateActive {
		return // it has nothing to hold, or Run is about to call Yield
	}
	if early := p.o.Order.Hold(p.isolation.holds()); early > 0 {
		p.o.Log.Info("applied updates that the previous active server had not published", "updates", early)
	}
}
