package order

import (
	"time"

	"clustermap/chp/internal/state"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// Leases answers a question about leases: it appends to left, for each, the time that it has left,
// wire.LeaseEnding or wire.LeaseGone. With wire.LeaseRenew those that have time get all of it again, from
// now on, and with wire.LeaseRevoke they end soon. Nothing of that is ordered, nor in a log: a
// server that takes over, is started, or did not run gives all leases all of their time.
//
// The answer is to be sent only if answer is true: the server is active, may not be cut off from
// everybody, and knows what is held. Otherwise leases are renewed all the same, so that none ends of which it has heard.
func (q *Sequencer) Leases(kind wire.LeaseKind, ids []kvmsg.LeaseID, left []time.Duration) (_ []time.Duration, answer bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.passive || q.state.Leases == nil {
		return left, false
	}
	exact := q.held.index()
	for _, id := range ids {
		left = append(left, q.lease(kind, id))
	}
	return left, exact && q.halted == (halted{})
}

// lease is Leases for one of them. mu must be held, and the held updates be indexed.
func (q *Sequencer) lease(kind wire.LeaseKind, id kvmsg.LeaseID) (left time.Duration) {
	var space [64]byte
	key, l := q.state.Lease(id, space[:0])
	if l.Seq == 0 {
		if q.state.Leases.IsDue(id) { // some of its keys are left
			return wire.LeaseEnding
		}
		return wire.LeaseGone
	}
	if a, ok := q.held.newest[l.Hash]; ok && a.record.HasKey(key) && len(a.record.Value()) == 0 {
		return wire.LeaseEnding
	}
	switch kind {
	case wire.LeaseRenew:
		if q.state.RenewLease(id, l) {
			return l.TTL
		}
	case wire.LeaseRevoke:
		q.state.Leases.End(id)
		q.arm(state.Outcome{Timed: true}, timer.Now())
	default:
		if left := q.state.LeaseLeft(id, l); left > 0 {
			return left
		}
	}
	return wire.LeaseEnding
}

// endOrphans makes the leases end of which keys are left, and no others that were due: mu must be held.
func (q *Sequencer) endOrphans() {
	q.state.Leases.Forget() // those have their deadlines
	if q.state.Leases.Orphans(&q.state.Store) {
		q.arm(state.Outcome{Timed: true}, timer.Now())
	}
}

// admits returns why the updates of a request may not be made: the map has no room, or too many leases, or a
// lease to which one attaches a key is not there, or its identity is malformed. It takes the room. mu must be held.
func (q *Sequencer) admits(j *judge, from From) *kvmsg.MessageError {
	leases := 0
	var ended map[string]bool // keys of leases that the request itself deletes
	for _, r := range j.request.Records() {
		if kvmsg.IsHidden(r.Key()) {
			if len(r.Value()) > 0 {
				leases++
			} else {
				if ended == nil {
					ended = map[string]bool{}
				}
				ended[string(r.Key())] = true
			}
		} else if props := r.Props(); len(props) > 0 {
			if text, ok := kvmsg.Property(props, kvmsg.PropertyLease); ok && (!q.hasLease(j, text) || ended[kvmsg.LeasePrefix+string(text)]) {
				return kvmsg.ErrLease
			}
		}
	}
	if leases > 0 && q.state.Leases != nil {
		if n, _ := q.state.Leases.Len(); n+leases > q.state.Leases.Most {
			return kvmsg.ErrMapFull
		}
	}
	used := j.use
	if from.Share != nil && !q.shared(j, from, &used) {
		return kvmsg.ErrLimit
	}
	if !q.grows(j, from.By) {
		return kvmsg.ErrMapFull
	}
	j.use = used
	j.grants = j.grants || leases > 0
	return nil
}

// hasLease reports whether there is a lease with an identity when the requests in j are made. mu must be held.
func (q *Sequencer) hasLease(j *judge, text []byte) bool {
	var space [64]byte
	id, ok := kvmsg.ParseLeaseID(text)
	if !ok {
		return false
	}
	key := kvmsg.AppendLeaseKey(space[:0], id)
	return q.newest(j, kvmsg.HashKey(key), key).Record != nil
}

// wasLate lets no lease end by itself for as long as this process did not run: so long it
// takes at most to hear what came meanwhile.
func (q *Sequencer) wasLate(now time.Time, late time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state.Leases.Spare(timer.At(now) + late)
}

// ending is memory for ending leases, which is used again.
type ending struct {
	late map[kvmsg.LeaseID][]kvmsg.Record // keys that held updates attach
	keys []byte
	ends []int // of each key in keys
	hash []uint64
	rest []kvmsg.LeaseID // leases that have more keys than a transaction
}

// endLeases ends some of the leases that are due, and publishes the deletions as one entry: of each the
// keys that are attached, and the lease's own, as one transaction. One with more keys than a
// transaction has ends with the first ones, and is due again for the others. If the server fails in between, they are
// orphans of which the next one finds that the lease is gone. As Expire it works in portions: endPortion bounds
// what is done under one hold of the mutex, and the last lease of a portion may have a transaction beyond it.
// It reports whether there is more to do, and the size in bytes. mu must be held.
func (q *Sequencer) endLeases(d *expiry) (more bool, size int) {
	leases := q.state.Leases
	if leases.Due() == 0 || !q.held.index() {
		return false, 0
	}
	e := &d.ending
	e.rest = e.rest[:0]
	d.wire, d.spans = d.wire[:0], d.spans[:0]
	for n := 0; n < expirePortion && len(d.spans) < expirePortion && len(d.wire) < expireBytes; n++ {
		id, ok := leases.NextDue()
		if !ok {
			break
		}
		q.endLease(d, id)
	}
	if len(d.spans) > 0 {
		q.apply(&state.Entry{Head: state.Head{At: timer.Now()}, Wire: d.wire, Spans: d.spans, Grouped: true}, "")
		q.Counted.Expired.Add(uint64(len(d.spans)))
		size = len(d.wire)
	}
	for _, id := range e.rest {
		leases.End(id)
	}
	e.late = nil // it refers to updates that are no longer held
	return leases.Due() > 0, size
}

// endLease appends the deletions of a lease and its keys to those of d. mu must be held.
func (q *Sequencer) endLease(d *expiry, id kvmsg.LeaseID) {
	e := &d.ending
	e.keys, e.ends, e.hash = e.keys[:0], e.ends[:0], e.hash[:0]
	add := func(hash uint64, key []byte) {
		e.keys = append(e.keys, key...)
		e.ends, e.hash = append(e.ends, len(e.keys)), append(e.hash, hash)
	}
	var space [64]byte
	own, l := q.state.Lease(id, space[:0])
	there := l.Seq > 0
	if a, ok := q.held.newest[l.Hash]; ok && a.record.HasKey(own) {
		if there = false; len(a.record.Value()) > 0 {
			return // somebody has set it again
		}
	}
	most := txn.MaxUpdates
	if there {
		most--
	}
	more := false
	for _, r := range q.late(e, id) {
		if more = len(e.ends) == most; more {
			break
		}
		add(kvmsg.HashKey(r.Key()), r.Key())
	}
	if more = more || q.state.Leases.Take(&q.state.Store, id, expirePortion, func(hash uint64, key []byte) bool {
		if _, ok := q.held.newest[hash]; ok {
			return true // another update takes it away, or has ended it
		}
		if len(e.ends) == most {
			return false
		}
		add(hash, key)
		return true
	}); more {
		e.rest = append(e.rest, id)
	}
	if there {
		add(l.Hash, own)
	}
	start := 0
	for i, end := range e.ends {
		d.wire, d.spans = state.AppendExpired(d.wire, d.spans, e.hash[i], e.keys[start:end], len(e.ends)-1-i)
		start = end
	}
}

// late returns the updates among those that are held which attach keys to a lease, and are the last ones of
// their keys. mu must be held, and the held updates be indexed.
func (q *Sequencer) late(e *ending, id kvmsg.LeaseID) []kvmsg.Record {
	if e.late == nil {
		e.late = map[kvmsg.LeaseID][]kvmsg.Record{}
		for _, a := range q.held.newest {
			if len(a.record.Value()) == 0 {
				continue
			}
			if of, ok := kvmsg.LeaseOf(a.record, kvmsg.TagProperties); ok {
				e.late[of] = append(e.late[of], a.record)
			}
		}
	}
	return e.late[id]
}
