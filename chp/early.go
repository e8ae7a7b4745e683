package chp

import (
	"container/list"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// early holds the updates that clients of other makes have sent to a server of a pair
// before the active server published them. The guide's clients send every KVSET to
// both servers. When the active server dies, the passive one applies what it has here,
// so that updates which were on their way are not lost.
//
// One update has the same UUID in both copies. The active server's records take out
// the copies that have come, and are remembered for the copies that come later.
// An update without a UUID is not held: its copies could not be told from two updates.
// Clients of this package write to one server only, so their batches are passed over.
//
// A server takes one connection's updates in their order. So when the active server
// publishes one of a client's updates, the earlier ones of that connection which are
// still here never reached it, or were refused there: they are dropped too. Nothing
// older than what a client sees of its own can come back.
//
// Memory is bounded by earlyBytes and two times maxSeen; the oldest updates give way.
// The zero early is empty. It is guarded by the sequencer's mutex; times are on clock.
type early struct {
	timeout time.Duration // of the pair
	order   list.List     // of *earlyUpdate, by arrival
	byID    map[updateID]*earlyUpdate
	froms   map[*sockets.Peer]*earlyQueue
	bytes   int
	count   uint64 // updates that ever came

	seen seenUpdates
}

type updateID = [kvmsg.UUIDSize]byte

// earlyUpdate is one update.
type earlyUpdate struct {
	id     updateID
	wire   []byte
	tag    uint64
	at     time.Duration
	number uint64 // of its arrival
	from   *sockets.Peer
	after  *earlyUpdate // the next one of the connection
	place  *list.Element
}

// earlyQueue is the updates of one connection. They leave at the front only.
type earlyQueue struct{ first, last *earlyUpdate }

const (
	// earlyBytes bounds the memory of early updates, and earlyOverhead is the part
	// of one besides its bytes. So there are at most 65,536 of them.
	earlyBytes    = 16 << 20
	earlyOverhead = 256
	// earlyAges is for how many time-outs the active server may be heard from without
	// publishing an update: then it never will.
	earlyAges = 2
	// maxEarlyAge is the greatest age of an update that is applied, however long there
	// is no active server. A client on libzmq may take ten seconds to turn to the other
	// server.
	maxEarlyAge = time.Minute
)

// idOf returns the UUID of a record, and false if it has none.
func idOf(record []byte) (id updateID, ok bool) {
	at := 2 + int(record[1]) + 2 + kvmsg.SequenceSize // keys from the wire are short
	if record[at+1] != kvmsg.UUIDSize {
		return id, false
	}
	return updateID(record[at+2:][:kvmsg.UUIDSize]), true
}

// empty says whether no update is held, nor any remembered.
func (e *early) empty() bool { return e.order.Len() == 0 && e.seen.empty() }

// keep takes updates that came over a connection.
func (e *early) keep(from *sockets.Peer, wire []byte, spans []sockets.Span, now time.Duration) {
	for _, s := range spans {
		m := wire[s.Start:s.End]
		id, ok := idOf(m)
		if !ok || e.byID[id] != nil {
			continue
		}
		if e.seen.remove(id) {
			e.dropFrom(from)
			continue
		}
		e.add(&earlyUpdate{id: id, wire: append([]byte(nil), m...), tag: s.Tag, at: now, from: from})
	}
}

func (e *early) add(u *earlyUpdate) {
	if e.byID == nil {
		e.byID, e.froms = map[updateID]*earlyUpdate{}, map[*sockets.Peer]*earlyQueue{}
	}
	e.count++
	u.number = e.count
	u.place = e.order.PushBack(u)
	e.byID[u.id] = u
	if q := e.froms[u.from]; q == nil {
		e.froms[u.from] = &earlyQueue{u, u}
	} else {
		q.last.after = u
		q.last = u
	}
	for e.bytes += u.size(); e.bytes > earlyBytes && e.order.Len() > 1; {
		e.drop(e.oldest())
	}
}

func (u *earlyUpdate) size() int { return earlyOverhead + len(u.wire) }

func (e *early) oldest() *earlyUpdate {
	if front := e.order.Front(); front != nil {
		return front.Value.(*earlyUpdate)
	}
	return nil
}

// drop ends an update, the first one of its connection.
func (e *early) drop(u *earlyUpdate) {
	e.order.Remove(u.place)
	delete(e.byID, u.id)
	e.bytes -= u.size()
	if q := e.froms[u.from]; u.after == nil {
		delete(e.froms, u.from)
	} else {
		q.first = u.after
	}
}

// dropFrom ends all updates of a connection.
func (e *early) dropFrom(from *sockets.Peer) {
	for q := e.froms[from]; q != nil; q = e.froms[from] {
		e.drop(q.first)
	}
}

// published notes the active server's records.
func (e *early) published(wire []byte, spans []sockets.Span, now time.Duration) {
	for _, s := range spans {
		if id, ok := idOf(wire[s.Start:s.End]); ok {
			e.note(id, now)
		}
	}
}

// note notes that the active server has published an update.
func (e *early) note(id updateID, now time.Duration) {
	u := e.byID[id]
	if u == nil {
		e.seen.note(id, now, e.timeout)
		return
	}
	for q := e.froms[u.from]; q.first != u; {
		e.drop(q.first)
	}
	e.drop(u)
}

// copied notes that the server has copied the active server's map, as it was when the
// update with the given number had come. What came before that is in the map, or was
// replaced or refused there. seen are updates in the map.
func (e *early) copied(number uint64, seen *seenUpdates, now time.Duration) {
	for u := e.oldest(); u != nil && u.number <= number; u = e.oldest() {
		e.drop(u)
	}
	for _, ids := range []map[updateID]struct{}{seen.older, seen.newer} {
		for id := range ids {
			e.note(id, now)
		}
	}
}

// fresh returns, in spans' own memory, the updates without those that are remembered.
func (e *early) fresh(wire []byte, spans []sockets.Span) []sockets.Span {
	kept := spans[:0]
	for _, s := range spans {
		if id, ok := idOf(wire[s.Start:s.End]); ok && e.seen.remove(id) {
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

// expire ends what is too old. heard is when the active server was heard last, 0 if
// never: while it is silent, updates wait for the server that takes over.
func (e *early) expire(now, heard time.Duration) {
	for u := e.oldest(); u != nil && (u.at < heard-earlyAges*e.timeout || u.at < now-maxEarlyAge); u = e.oldest() {
		e.drop(u)
	}
	e.seen.expire(now, e.timeout)
}

// take returns all updates that are not too old, in the order of their arrival and with
// what is left of their times to live, and holds none any more. One whose time is over
// has a nanosecond left: it still replaces what was there.
func (e *early) drain(now time.Duration) (wire []byte, spans []sockets.Span) {
	e.expire(now, 0)
	for u := e.oldest(); u != nil; u = e.oldest() {
		left := time.Duration(0)
		if ttl := kvmsg.TTLOf(kvmsg.Record(u.wire).Props()); ttl > 0 {
			left = max(ttl-(now-u.at), 1)
		}
		start := len(wire)
		wire = kvmsg.AppendAged(wire, u.wire, left)
		spans = append(spans, sockets.Span{Start: uint32(start), End: uint32(len(wire)), Tag: u.tag})
		e.drop(u)
	}
	return wire, spans
}

// seenUpdates is a bounded memory of updates that were published. It remembers each for
// a while, at most twice as long and at least half of maxSeen of them.
type seenUpdates struct {
	newer, older map[updateID]struct{}
	began        time.Duration // when newer was begun
}

const (
	// maxSeen bounds each of the two sets.
	maxSeen = 1 << 16
	// seenAges is for how many time-outs an update is remembered.
	seenAges = 10
)

func (s *seenUpdates) empty() bool { return len(s.newer)+len(s.older) == 0 }

// note remembers an update.
func (s *seenUpdates) note(id updateID, now, timeout time.Duration) {
	if len(s.newer) >= maxSeen {
		s.turn(now)
	}
	s.expire(now, timeout)
	if s.newer == nil {
		s.newer, s.began = map[updateID]struct{}{}, now
	}
	s.newer[id] = struct{}{}
}

// remove forgets an update and reports whether it was remembered: each has one other
// copy.
func (s *seenUpdates) remove(id updateID) bool {
	_, newer := s.newer[id]
	_, older := s.older[id]
	delete(s.newer, id)
	delete(s.older, id)
	return newer || older
}

// expire forgets what is too old.
func (s *seenUpdates) expire(now, timeout time.Duration) {
	if now-s.began < seenAges*timeout {
		return
	}
	if !s.empty() {
		s.turn(now)
	}
	s.began = now
}

func (s *seenUpdates) turn(now time.Duration) { s.older, s.newer, s.began = s.newer, nil, now }

// published remembers the updates of records, however long ago they were published.
func (s *seenUpdates) published(wire []byte, spans []sockets.Span) {
	for _, span := range spans {
		// Those of clients of this package are of version 8.
		if id, ok := idOf(wire[span.Start:span.End]); ok && id[6]>>4 != 8 {
			s.note(id, 0, time.Hour)
		}
	}
}

// filter returns which updates of a batch the server is to take now. A passive server
// takes none, and keeps those of other makes for later. mu must be held.
func (e *early) filter(b *sockets.Batch, passive bool) []sockets.Span {
	ours := b.Peer().Property(propertyClient) != ""
	switch {
	case passive:
		if !ours {
			e.keep(b.Peer(), b.Wire(), b.Spans(), clock())
		}
		return nil
	case ours:
		return b.Spans()
	}
	return e.fresh(b.Wire(), b.Spans())
}

// acceptEarly applies and publishes the updates that came early, as if they came now, and
// returns how many there are. mu must be held.
func (q *sequencer) acceptEarly() int {
	wire, spans := q.early.drain(clock())
	if len(spans) > 0 {
		q.acceptNow(wire, spans, sender{}) // what does not fit is counted
	}
	return len(spans)
}
