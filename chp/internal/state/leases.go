package state

import (
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/fifo"
	"clustermap/internal/kvmsg"
	"clustermap/internal/list"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// Leases knows which keys of a map are attached to which lease, and which leases are to end. Only
// a server needs it: it ends a lease with all of its keys.
//
// A lease is a key (kvmsg.LeasePrefix) with a time to live; its value has that time, too. A key is
// attached by a property of its last update. What is here is derived from the map and follows it, so it
// needs no place in a log or a copy, and there is at most one attachment for each key.
//
// As in timer.Deadlines an update without properties leaves the attachment of its key, with an older
// sequence than the record has; it is then ignored. A nil *Leases is empty and remains so.
type Leases struct {
	// Most bounds the leases that are granted.
	Most int

	keys map[uint64]*attached // by the hash of the key
	all  map[kvmsg.LeaseID]*lease
	n    int // of those in the map
	due  fifo.Queue[kvmsg.LeaseID]

	spare time.Duration // none becomes due by itself before
	turn  uint64        // deletions that were made in an earlier one may never be in the map
}

// lease is what is known of a lease. It is forgotten when nothing is.
type lease struct {
	seq  int64 // of its key in the map, or 0
	keys list.List[attached]
	due  bool // it is to end, whatever time it has
}

// attached is a key that is attached to a lease.
type attached struct {
	hash  uint64
	seq   int64 // of the update that has attached it
	lease kvmsg.LeaseID
	place list.Element[attached]
	taken uint64 // Leases.turn in which it was taken
}

// NewLeases returns the leases of an empty map.
func NewLeases() *Leases {
	return &Leases{Most: MaxLeases, keys: map[uint64]*attached{}, all: map[kvmsg.LeaseID]*lease{}, turn: 1}
}

// of returns what is known of a lease, from now on.
func (l *Leases) of(id kvmsg.LeaseID) *lease {
	one := l.all[id]
	if one == nil {
		one = new(lease)
		l.all[id] = one
	}
	return one
}

// tidy forgets a lease of which nothing is known.
func (l *Leases) tidy(id kvmsg.LeaseID, one *lease) {
	if one.seq == 0 && one.keys.Len() == 0 && !one.due {
		delete(l.all, id)
	}
}

// apply takes a batch of updates as [timer.Deadlines.Apply] does. It reports whether a lease is due
// that was not.
func (l *Leases) apply(wire []byte, spans []buf.Span, first int64) (due bool) {
	if l == nil || !timedIn(spans) {
		return false
	}
	for i, s := range spans {
		if s.Tag&kvmsg.TagFlags == 0 || s.Tag&kvmsg.TagDelete != 0 && len(l.all) == 0 {
			continue
		}
		r := kvmsg.Record(wire[s.Start:s.End])
		hash, seq := s.Tag&^kvmsg.TagFlags, first+int64(i)
		if first == 0 {
			seq = r.Seq()
		}
		known := l.keys[hash]
		if known != nil && known.seq <= seq {
			l.detach(known)
			known = nil
		}
		if id, ok := kvmsg.LeaseOfKey(r.Key()); ok {
			due = l.note(id, seq, s.Tag&kvmsg.TagDelete != 0) || due
		} else if id, ok := kvmsg.LeaseOf(r, s.Tag); ok && known == nil {
			l.attach(&attached{hash: hash, seq: seq, lease: id})
		}
	}
	return due
}

// note takes an update of the key of a lease. One that is deleted is due for the keys that are left.
func (l *Leases) note(id kvmsg.LeaseID, seq int64, deleted bool) (due bool) {
	if deleted && l.all[id] == nil {
		return false
	}
	one := l.of(id)
	switch {
	case one.seq > seq:
	case deleted:
		l.gone(one)
		due = one.keys.Len() > 0 && l.end(id)
		l.tidy(id, one)
	default:
		if one.seq == 0 {
			l.n++
		}
		one.seq = seq
	}
	return due
}

// gone records that a lease is not in the map.
func (l *Leases) gone(one *lease) {
	if one.seq > 0 {
		one.seq = 0
		l.n--
	}
}

func (l *Leases) attach(a *attached) {
	a.place.Of = a
	l.keys[a.hash] = a
	l.of(a.lease).keys.PushBack(&a.place)
}

func (l *Leases) detach(a *attached) {
	delete(l.keys, a.hash)
	a.place.Remove()
	l.tidy(a.lease, l.all[a.lease])
}

// End makes a lease one that is to end.
func (l *Leases) End(id kvmsg.LeaseID) { l.end(id) }

// end is End, and reports whether it was not.
func (l *Leases) end(id kvmsg.LeaseID) bool {
	one := l.of(id)
	if one.due {
		return false
	}
	one.due = true
	l.due.Push(id)
	return true
}

// IsDue reports whether a lease is to end, or keys of one that is not in the map.
func (l *Leases) IsDue(id kvmsg.LeaseID) bool { return l.all[id] != nil && l.all[id].due }

// Due returns the number of leases that are to end.
func (l *Leases) Due() int {
	if l == nil {
		return 0
	}
	return l.due.Len()
}

// NextDue returns a lease that is to end, which no longer is among those. The caller ends it. ok is false
// if there is none.
func (l *Leases) NextDue() (id kvmsg.LeaseID, ok bool) {
	if l.Due() == 0 {
		return id, false
	}
	id = l.due.Pop()
	one := l.all[id]
	one.due = false
	l.tidy(id, one)
	return id, true
}

// Forget forgets which leases are to end, at a server that does not end them.
func (l *Leases) Forget() {
	if l == nil {
		return
	}
	l.turn++
	for l.Due() > 0 {
		l.NextDue()
	}
}

// Orphans makes those leases end whose keys outlived them: the server that was ending them did not come to
// all. It reports whether there are some.
func (l *Leases) Orphans(of *store.Map) (some bool) {
	if l == nil {
		return false
	}
	var space [64]byte
	for id, one := range l.all {
		key := kvmsg.AppendLeaseKey(space[:0], id)
		if of.Newest(kvmsg.HashKey(key), key) != nil {
			continue
		}
		if l.gone(one); one.keys.Len() > 0 {
			some = l.end(id) || some
		}
		l.tidy(id, one)
	}
	return some
}

// Take calls f with the keys of a lease that are in the map, each once in a turn as the active server, until f returns false. A
// key is valid during the call. The steps bound the keys that are looked at. Take returns whether there are more.
func (l *Leases) Take(of *store.Map, id kvmsg.LeaseID, steps int, f func(hash uint64, key []byte) bool) (more bool) {
	if l == nil || l.all[id] == nil {
		return false
	}
	one := l.all[id]
	var key []byte
	for ; one.keys.Len() > 0; steps-- {
		a := one.keys.Front() // those that were taken are behind the others
		if a.taken == l.turn {
			return false
		}
		if steps == 0 {
			return true
		}
		var ok bool
		if key, ok = of.KeyOf(a.hash, a.seq, key[:0]); !ok {
			l.detach(a) // another update has taken it away
			continue
		}
		if !f(a.hash, key) {
			return true
		}
		a.taken = l.turn
		a.place.Remove()
		one.keys.PushBack(&a.place)
	}
	return false
}

// Of returns the lease to which the update with a sequence has attached the key with a hash. ok is false if it is none.
func (l *Leases) Of(hash uint64, seq int64) (id kvmsg.LeaseID, ok bool) {
	if a := l.keys[hash]; a != nil && a.seq == seq {
		return a.lease, true
	}
	return id, false
}

// Len returns the number of leases in the map, and of the keys that are attached.
func (l *Leases) Len() (leases, keys int) {
	if l == nil {
		return 0, 0
	}
	return l.n, len(l.keys)
}

// Spare lets no lease become due by itself before a time: the server did not run for a while, and
// has not heard what came meanwhile.
func (l *Leases) Spare(until time.Duration) {
	if l != nil {
		l.spare = max(l.spare, until)
	}
}

// overdue is called when the deadline of a lease comes: if the lease has more time it returns its new
// deadline, and otherwise makes it end, and returns when to ask again, if it is still there.
//
// Its holder may have renewed it at another server, or before this one was started, and its
// renewals may be on their way to a server that did not run: renewals are in no log. So it has all of its
// time after such an event, and the grace before that.
func (s *State) overdue(id kvmsg.LeaseID, key []byte, seq int64, spared int64, grace, now time.Duration) (until time.Duration) {
	if seq <= spared {
		s.Store.View(key, func(r kvmsg.Record) { until = grace + kvmsg.LeaseTime(r.Value()) })
	}
	if until = max(until, s.Leases.spare); until > now {
		return until
	}
	s.Leases.end(id)
	return now + leaseRetry
}

// LeaseNow is what is known of a lease.
type LeaseNow struct {
	Hash uint64
	Seq  int64         // of its key, 0 if there is no such lease
	TTL  time.Duration // 0 also if its value is malformed
}

// Lease returns what is known of a lease in the map, whose key it appends to dst.
func (s *State) Lease(id kvmsg.LeaseID, dst []byte) (key []byte, now LeaseNow) {
	key = kvmsg.AppendLeaseKey(dst, id)
	now.Hash = kvmsg.HashKey(key)
	if r := s.Store.Newest(now.Hash, key); r != nil {
		now.Seq, now.TTL = r.Seq(), kvmsg.LeaseTime(r.Value())
	}
	return key, now
}

// RenewLease gives a lease its time from now on. ok is false if it has none any more.
func (s *State) RenewLease(id kvmsg.LeaseID, l LeaseNow) (ok bool) {
	return l.TTL > 0 && !s.Leases.IsDue(id) && s.Deadlines.Renew(l.Hash, l.Seq, timer.Now()+l.TTL)
}

// LeaseLeft returns how much time a lease has left, or 0.
func (s *State) LeaseLeft(id kvmsg.LeaseID, l LeaseNow) time.Duration {
	if s.Leases.IsDue(id) {
		return 0
	}
	end, _ := s.Deadlines.Deadline(l.Hash, l.Seq)
	if spared, grace := s.Deadlines.Spared(); l.Seq <= spared {
		end = max(end, grace+l.TTL)
	}
	return max(end-timer.Now(), 0)
}
