package order

import (
	"context"
	"time"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// A server of a cluster publishes all that is committed, whoever has ordered it. It orders updates itself while it
// leads: from the moment at which it has all that came before its term. What it has ordered stays held until the
// cluster says what became of it, also when it does not lead any more; until then it takes no other updates.

// A termed journal appends in terms, and gives a map its identity. Its methods are called with the mutex held.
type termed interface {
	Lead(term uint64)
	Name(id [ledger.MapIDSize]byte, after int64) (proposed bool)
}

// LeadTerm makes a server of a cluster order updates in a term. Of a new map, which has no identity yet, it orders none:
// it gets one first, and a sequence after which its updates begin. In a term that was interrupted, what is held is still
// under way. No key expires during the grace that was there before.
//
// The only node of a cluster has, when it starts, no others that know more: its log may be that of a server which crashed, or
// a backup. So its sequences go on above all that clients may have seen, as those of a server alone do when it starts.
func (q *Sequencer) LeadTerm(term uint64, id [ledger.MapIDSize]byte, first int64, alone bool, grace time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.journal.(termed)
	j.Lead(term)
	switch {
	case q.state.ID == [ledger.MapIDSize]byte{}:
		q.begun = true
		j.Name(id, first)
		return
	case q.skipping == term: // until the cluster has that
		return
	case !q.passive:
		return
	case alone && !q.begun:
		if q.begun = j.Name([ledger.MapIDSize]byte{}, state.Unused(q.state.Last(), first)); q.begun {
			q.skipping = term
		}
		return
	}
	q.begun = true
	if q.held.empty() {
		q.order.last = q.state.Last()
		q.order.reigns.Set(q.state.Terms.History())
		q.state.Deadlines.Spare(q.order.last, grace)
		q.endOrphans()
	}
	q.order.reigns.Present, q.order.reigns.Interim = term, false
	q.passive = false
	q.recount() // what others have ordered was not counted
	q.wakeWaiters()
}

// EndTerm makes a server of a cluster order no more updates. It reports whether it did.
func (q *Sequencer) EndTerm() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.journal.(termed).Lead(0)
	led := !q.passive
	if led {
		q.passive = true
		q.endTerm()
	}
	q.dropUntaken()
	q.noteWaits()
	q.wakeWaiters()
	return led
}

// untaken is called when the journal has not taken a batch: the server leads no more. mu must be held.
func (q *Sequencer) untaken() {
	if q.o.Cluster && !q.passive {
		q.passive = true
		q.endTerm()
	}
}

// dropUntaken removes the held batches that the journal has not taken: they are the last ones. mu must be held.
func (q *Sequencer) dropUntaken() {
	n := q.held.size()
	for n > 0 && q.held.batches.At(n-1).index == journal.Never {
		n--
	}
	if n == q.held.size() {
		return
	}
	q.truncate(n)
	for i := range n {
		if b := q.held.batches.At(i); b.Counter > 0 {
			q.state.Clients.Reorder(b.Client, b.Counter)
		}
	}
}

// truncate removes the held batches behind the first n, which are lost. mu must be held.
func (q *Sequencer) truncate(n int) {
	last := q.state.Last()
	var kept held
	var again []byte
	for i := 0; !q.held.empty(); i++ {
		b := q.held.oldest()
		if i < n {
			last = b.Last()
			kept.add(b)
		} else {
			q.state.Store.Truncate(b.pieces)
			if unnumbered(&b.Head) {
				b.records(func(r kvmsg.Record, _ uint64) { q.unique.remove(r) })
			}
			if b.resend {
				b.records(func(r kvmsg.Record, _ uint64) { again = append(again, r...) })
			}
		}
		q.held.drop()
	}
	kept.spare = q.held.spare
	q.held = kept
	q.order.last = last
	q.order.reigns.Set(q.state.Terms.History())
	q.state.Clients.Revert()
	if len(again) > 0 && q.o.Resend != nil {
		q.o.Resend(again)
	}
}

// LostAll says that what is held is lost. Then its updates that have no number are passed to Options.Resend, unless
// it is not known that they are.
func (q *Sequencer) LostAll(known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !known {
		for i := range q.held.size() {
			q.held.batches.At(i).resend = false
		}
	}
	q.truncate(0)
	q.noteWaits()
	q.wakeWaiters()
}

// Own publishes the oldest held batch, and reports false if that does not have an index: it is not held any
// more, since a map has taken the place of this one.
func (q *Sequencer) Own(index journal.Index) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held.empty() || q.held.oldest().index != index {
		return false
	}
	q.publish(q.held.oldest())
	q.held.drop()
	q.noteWaits()
	q.wakeWaiters()
	return true
}

// Foreign publishes a batch that another server has ordered, or this one before it was started.
func (q *Sequencer) Foreign(e *state.Entry, index journal.Index) error {
	for _, span := range e.Spans {
		if span.Tag&kvmsg.TagProperties != 0 && kvmsg.MoreOf(kvmsg.Record(e.Wire[span.Start:span.End]), span.Tag) > 0 {
			e.Grouped = true
			break
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.held.empty() || e.First <= q.state.Last() {
		return errGap
	}
	out := q.state.Apply(e)
	q.order.follow(&e.Head)
	q.arm(out, e.Since())
	q.unique.addAll(&e.Head, e.Wire, e.Spans)
	q.linked = index
	q.send(out.Pieces, e.Spans, e.Grouped)
	q.state.Leases.Forget() // the leader ends leases
	q.wakeWaiters()
	return nil
}

// Name gives a new map its identity, and reports whether it had none. Its first update gets the sequence after one. Without an
// identity it says only that the sequences of a map which has one go on there.
func (q *Sequencer) Name(id [ledger.MapIDSize]byte, after int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	none := [ledger.MapIDSize]byte{}
	if (q.state.ID == none) == (id == none) {
		return false
	}
	if id == none {
		q.skipping = 0
		q.state.SkipTo(after)
		q.order.last = q.state.Last()
		return true
	}
	q.state.ID = id
	q.state.SkipTo(after)
	q.order.last = q.state.Last()
	q.window.Begin(&q.state.Store, q.state.Last(), timer.Now())
	return true
}

// Named reports whether the map has an identity.
func (q *Sequencer) Named() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.ID != [ledger.MapIDSize]byte{}
}

// Empty returns an empty map for Replace.
func (q *Sequencer) Empty() *state.State {
	s := state.New(0)
	q.mu.Lock()
	defer q.mu.Unlock()
	s.History, s.Leases = q.state.History.Empty(), state.NewLeases()
	return s
}

// Replace replaces the map.
func (q *Sequencer) Replace(s *state.State) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setState(s)
	q.alarm.at = timer.Now()
	q.noteWaits()
	q.wakeWaiters()
}

// SequenceOf returns the sequence of a client's update that is in the map or, if that is not known any more, of a later one.
func (q *Sequencer) SequenceOf(id ledger.ID, number uint64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.state.Clients.Reply(id, q.state.ID)
	return r.SequenceOf(number, q.state.Last())
}

// Shown waits until the map has an update with a sequence.
func (q *Sequencer) Shown(ctx context.Context, sequence int64) error {
	for {
		q.mu.Lock()
		if q.state.Last() >= sequence {
			q.mu.Unlock()
			return nil
		}
		more := q.more()
		q.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Follows reports whether a server of a cluster does not order updates: they have to go to another one.
func (q *Sequencer) Follows() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.passive && q.o.Cluster
}

// Serve says whether a server of a cluster publishes heartbeats: clients are to find another one if it has heard
// no leader for long.
func (q *Sequencer) Serve(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.serves = on
}

// stale reports whether updates come over a connection that a client has had before a term of this server ended. What was
// ordered of that connection may be lost, and what comes behind it would leave a gap. mu must be held.
func (q *Sequencer) stale(from From) bool {
	return q.o.Cluster && from.Numbered && from.Term != q.ends.count
}

// Stale is stale for what has to be relayed.
func (q *Sequencer) Stale(from From) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stale(from)
}

// Unfit is the place of an update that is refused in a batch, and why.
type Unfit struct {
	At     int
	Reason kvmsg.Reason
}

// Relayed orders updates of a client of another server, or of this one, as Accept does. It returns which of them the map
// has no room for, by their place. Until ok is true, it did nothing, and the caller has to call Room; if led is false
// this server leads no more.
func (q *Sequencer) Relayed(term uint64, records []byte, spans []buf.Span, from From) (unfit []Unfit, repeated int, w Written, ok, led bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.leads(term) {
		return nil, 0, w, false, false
	}
	if q.held.bytes >= MaxHeld || !q.fits(spans, from.By) {
		return nil, 0, w, false, true
	}
	collector := q.scratch.unfit // which its goroutine may still read
	q.scratch.unfit = nil
	q.scratch.relayed = append(q.scratch.relayed[:0], spans...) // acceptNow changes them
	refused, repeated := q.acceptNow(records, q.scratch.relayed, from)
	for _, r := range refused {
		for i, s := range spans {
			if s.Start == r.Start {
				unfit = append(unfit, Unfit{i, kvmsg.Reason(r.Tag)})
			}
		}
	}
	q.scratch.unfit = collector
	return unfit, repeated, q.made(), true, !q.passive
}

// RelayedRequests judges requests of a client of another server, or of this one, as Transact does.
func (q *Sequencer) RelayedRequests(term uint64, records []byte, spans []buf.Span, from From, values int, answers []byte) (_ []byte, w Written, done int, led bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.leads(term) {
		return answers, w, 0, false
	}
	if q.held.bytes >= MaxHeld {
		return answers, w, 0, true
	}
	answers, done = q.transact(records, spans, from, values, answers)
	return answers, q.made(), done, !q.passive
}

// RelayedLeases answers a question about leases as Leases does. If led is false this server leads no more.
func (q *Sequencer) RelayedLeases(term uint64, kind wire.LeaseKind, ids []kvmsg.LeaseID, left []time.Duration) (_ []time.Duration, led bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.leads(term) || q.state.Leases == nil {
		return left, false
	}
	q.held.index()
	for _, id := range ids {
		left = append(left, q.lease(kind, id))
	}
	return left, true
}

// Leads reports whether this server orders updates in a term.
func (q *Sequencer) Leads(term uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leads(term)
}

// leads is Leads. mu must be held.
func (q *Sequencer) leads(term uint64) bool { return !q.passive && q.order.reigns.Present == term }

// Undecided is undecided, for what has to be relayed: it must not overtake what is held.
func (q *Sequencer) Undecided() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.undecided()
}

// undecided reports whether a server of a cluster that does not lead has to wait for what becomes of what it holds. mu
// must be held.
func (q *Sequencer) undecided() bool { return q.o.Cluster && q.passive && !q.held.empty() }
