package partner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
	"clustermap/patterns/binarystar"
)

// ErrHandover means that nothing was done because the server hands over.
var ErrHandover = errors.New("another handover or promotion is in progress")

// Handover makes the other server active. First the other server receives all updates.
// When few are missing, this server stops accepting: new updates wait, and are accepted
// if the handover fails. by says for the log at whose request; it can be empty.
func (p *Pair) Handover(ctx context.Context, by string) (err error) {
	if by != "" {
		p.copier.requested.Store(&by)
		defer func() {
			if err != nil {
				p.copier.requested.Store(nil)
			}
		}()
	}
	q := p.o.Order
	p.awaitNews(ctx)
	f, err := p.successor()
	if err != nil {
		return err
	}
	near := func(*order.Moment) bool { return p.leader.journal.Near(f.to, order.MaxHeld) }
	most := max(p.o.Timeout, drainLeast)
	if err := p.leader.drain(ctx, f, most, near); err != nil {
		return fmt.Errorf("chp: handover failed: %w", err)
	}
	if f, err = p.successor(); err != nil {
		return err
	}
	if !q.Halt(true) {
		_, err = p.successor()
		return cmp.Or(err, ErrHandover)
	}
	if err = p.leader.drain(ctx, f, most, func(now *order.Moment) bool { return f.to.Have == now.Newest.Last }); err == nil {
		p.drained.Store(true)
		soon, cancel := context.WithTimeout(ctx, max(2*p.o.Timeout, drainLeast))
		err = p.node.Handover(soon) // the other server may have ended just now
		cancel()
	}
	if err == nil {
		return nil // updates wait until Run has called Yield
	}
	if p.node.State() == binarystar.StateActive { // otherwise Run calls Yield or Lead
		p.drained.Store(false)
		q.Halt(false)
	}
	return fmt.Errorf("chp: handover failed: %w", err)
}

// awaitNews waits until the node knows that a following server is passive. That state
// can arrive later than its acknowledgements, by up to the time-out. What the node knows
// can also be from before the other server has restarted.
func (p *Pair) awaitNews(ctx context.Context) {
	for end := time.Now().Add(p.News); time.Now().Before(end); {
		_, err := p.successor()
		peer := p.node.Peer()
		if known := peer.Alive && peer.State == binarystar.StatePassive; err != nil || known || !wake.Pause(ctx, time.Millisecond) {
			return
		}
	}
}

// successor returns the follower, or an error if this server cannot hand over to it.
func (p *Pair) successor() (f *following, err error) {
	p.o.Order.Between(func(now *order.Moment) {
		switch f = p.leader.live(); {
		case now.Passive:
			err = binarystar.ErrNotActive
		case now.Halted:
			err = ErrHandover
		case f == nil:
			err = binarystar.ErrNoSuccessor
		}
	})
	return f, err
}

// Shutdown hands over before an active server ends, if the other one has the map or is
// receiving it. So clients need not wait until the server is considered dead.
func (p *Pair) Shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for p.active.Load() {
		err := p.Handover(ctx, "")
		if errors.Is(err, ErrHandover) && wake.Pause(ctx, drainLook) {
			continue // another one is in progress, and may fail
		}
		if err != nil {
			p.o.Log.Info("stopping without a handover", "error", err)
		}
		return
	}
}

// Rested returns an error if the other server has handed over to this one so recently
// that it does not hand over at a request: clients must not be sent back and forth.
func (p *Pair) Rested() error {
	received, now := time.Duration(p.received.Load()), timer.Now()
	if left := received + handoverRest*p.o.Timeout - now; received != 0 && left > 0 {
		return fmt.Errorf("the other server handed over to it %v ago; it hands over again in %v",
			(now - received).Round(time.Millisecond), left.Round(time.Millisecond))
	}
	return nil
}
