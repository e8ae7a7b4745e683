package order

import (
	"context"
	"errors"
	"time"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// halted says why a server of a pair accepts no updates for now.
type halted struct {
	handover bool // it hands over
	isolated bool // it may have been cut off from everybody
}

// Halt makes updates of an active server wait during a handover, or ends that. It reports
// whether that changes anything.
func (q *Sequencer) Halt(on bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !(q.passive && on) && q.halt(halted{on, q.halted.isolated})
}

// halt changes why updates wait. It reports whether that is another reason than before. mu must
// be held.
func (q *Sequencer) halt(why halted) bool {
	if q.halted == why {
		return false
	}
	q.halted = why
	q.noteWaits()
	if why == (halted{}) {
		q.wakeWaiters()
	}
	return true
}

// Standing returns the last update of a client that is ordered here, and where the map comes
// from: the run of the active server that this one copies or has last copied, 0 if it has been
// active itself since.
func (q *Sequencer) Standing() (accepted state.Reign, source uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.order.reigns.Accepted(), q.source
}

// Lead makes the server active, and ends Halt. took is the epoch with which it took
// over, or 0; first is the sequence after which new updates begin, from the clock; no key of the map expires
// during the grace. If the server is isolated, nothing is published until Hold says so.
func (q *Sequencer) Lead(took uint64, isolated bool, first int64, grace time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.passive {
		q.order.reigns.Begin(took)
		q.passive, q.source = false, 0
		q.halt(halted{q.halted.handover, isolated})
		if !isolated {
			q.commit()
		}
		if q.held.empty() {
			// Otherwise the held updates continue without a jump, which clients would take
			// for a loss.
			q.state.SkipTo(state.Unused(q.state.Last(), first))
			q.order.last = q.state.Last()
		}
		q.recount()
		q.state.Deadlines.Spare(q.order.last, grace)
		q.endOrphans()
	}
	q.halt(halted{false, q.halted.isolated})
}

// Hold makes updates of an active server wait while it may be isolated. Those that arrived
// before it took over become due when they no longer wait; Hold returns their number.
func (q *Sequencer) Hold(isolated bool) (early int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.passive {
		return 0
	}
	if q.halt(halted{q.halted.handover, isolated}); isolated {
		return 0
	}
	q.commit()
	if n, _ := q.early.Len(); n == 0 {
		return 0
	}
	bytes, spans := q.early.Drain(timer.Now())
	if len(spans) > 0 {
		q.acceptNow(bytes, spans, From{}) // counts those that do not fit
	}
	return len(spans)
}

// Yield makes the server passive: it no longer accepts or publishes updates. What is held
// stays so, until the active server says whether it has it: see Copies and Install. The caller
// must disconnect the clients, and call Wake.
func (q *Sequencer) Yield() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.passive {
		q.passive = true
		q.endTerm()
	}
	q.halt(halted{})
}

// endTerm records that the server stops being the active one: held updates will not be
// published. mu must be held.
func (q *Sequencer) endTerm() {
	q.ends.count++
	q.terms.Store(q.ends.count)
	q.ends.kept = q.state.Last()
	q.ends.lost = q.ends.lost || !q.held.empty()
}

// Wake ends the waits for updates that a passive server holds.
func (q *Sequencer) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeWaiters()
}

// errGap is returned for a batch that does not continue the map.
var errGap = errors.New("chp: a batch does not follow the last update")

// Followed applies a batch of the active server, to a passive one.
func (q *Sequencer) Followed(h state.Head, wire []byte, spans []buf.Span) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Within a reign there are no gaps.
	newest := q.state.Terms.Newest
	if !q.held.empty() || h.First <= newest.Last || h.Reign < newest.ID || h.Reign == newest.ID && h.First != newest.Last+1 ||
		kvmsg.Record(wire[spans[0].Start:]).Seq() != h.First {
		return errGap
	}
	e := state.Entry{Head: h, Wire: wire, Spans: spans, Stamped: true}
	out := q.state.Apply(&e)
	q.order.follow(&h)
	q.arm(out, h.At)
	q.show(out.Pieces)
	q.linked = q.journal.Append(h, out.Pieces, 0)
	q.state.Leases.Forget() // the active server ends leases
	if h.Counter == 0 {     // not from a client of this package
		q.early.Published(wire, spans, timer.Now())
	}
	return nil
}

// Copies records that the map is a copy of that of the active server in a run, which has
// what is held here, too.
func (q *Sequencer) Copies(run uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.source = run
	q.order.reigns.Shared = true
	q.linkHeld()
}

// Share records that the other server has the map of this one.
func (q *Sequencer) Share() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.order.reigns.Shared = true
}

// A Copy is the map of the active server while a passive one receives it.
type Copy struct {
	State *state.State
	run   uint64 // of the active server
	most  int64  // bound of its bytes, or 0

	early uint64 // Early.Count when the transfer began
	seen  wire.Seen
}

// NewCopy begins to receive a map with an identity and terms.
func (q *Sequencer) NewCopy(run uint64, id [ledger.MapIDSize]byte, terms []state.Reign) *Copy {
	c := &Copy{State: state.New(0), run: run}
	c.State.ID = id
	c.State.RestoreTerms(terms)
	q.mu.Lock()
	defer q.mu.Unlock()
	c.early = q.early.Count()
	c.State.History, c.State.Leases = q.state.History.Empty(), state.NewLeases()
	if q.o.MaxBytes > 0 {
		// The server's own map may be larger, if the limit has been lowered, and records
		// on their way say how old they are.
		c.most = max(q.o.MaxBytes, int64(q.state.Store.LiveBytes())) / 4 * 5
	}
	return c
}

// Records adds records of the map. It reports whether the map does not exceed its bound.
func (c *Copy) Records(wire []byte, spans []buf.Span) bool {
	c.State.RestoreRecords(wire, spans, timer.Now())
	c.seen.Published(wire, spans)
	return c.most == 0 || int64(c.State.Store.LiveBytes()) <= c.most
}

// Surrender puts what is held into the map of a passive server that is about to be replaced,
// so that it is reported with the other updates that are lost.
func (q *Sequencer) Surrender() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.linkHeld()
}

// Install replaces the map of a passive server by one that was received.
func (q *Sequencer) Install(ctx context.Context, c *Copy) error {
	// The journal gets the new map before the server does: later entries must not follow
	// those of the old map, nor may a checkpoint bring that back in between.
	q.saving.Lock()
	defer q.saving.Unlock()
	err := q.journal.Save(ctx, func() (*state.Image, journal.Index) {
		q.mu.Lock()
		defer q.mu.Unlock()
		return c.State.Image(), q.linked // nothing is appended meanwhile
	})
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setState(c.State)
	q.alarm.at = timer.Now()
	q.source = c.run
	q.order.reigns.Shared = true
	q.journal.Restored()
	q.early.Copied(c.early, &c.seen, timer.Now())
	return nil
}

// ExpireEarly removes early updates that are too old. heard is when the active server was
// last heard, or 0.
func (q *Sequencer) ExpireEarly(heard time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.early.Expire(timer.Now(), heard)
}

// Early returns the numbers of early updates and of those that are remembered because the
// active server has published them.
func (q *Sequencer) Early() (updates, published int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.early.Len()
}
