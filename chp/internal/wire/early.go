package wire

import (
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/list"
	"clustermap/sockets"
)

// Early keeps updates that clients of other implementations send to a passive server
// before the active one publishes them. The guide's clients send every KVSET to both
// servers. If the active server dies, the other one applies the early updates, so that
// updates in transit are not lost.
//
// The two copies of an update have the same UUID. A record of the active server removes
// the copy that is here, or is remembered for a copy that arrives later. Updates
// without a UUID are not kept, because two copies could not be told from two updates.
// Clients of this module send to one server only, so their updates are not kept
// either.
//
// A server accepts the updates of one connection in order. So when the active server
// publishes an update, the earlier ones of the same connection that are still here
// never reached it, or were refused. They are removed too: applying them later would
// undo an update that the client has already seen.
//
// Memory is bounded by earlyBytes, and by maxSeen for each of two sets of UUIDs; the
// oldest are removed first. The zero Early is empty. It is not safe for concurrent use.
// Times are those of one clock.
type Early struct {
	Timeout time.Duration // of the pair

	order list.List[earlyUpdate] // in order of arrival
	byID  map[updateID]*earlyUpdate
	froms map[*sockets.Peer]*list.List[earlyUpdate] // those of a connection
	bytes int
	count uint64 // updates added since the start

	seen Seen
}

type updateID = [kvmsg.UUIDSize]byte

type earlyUpdate struct {
	id     updateID
	wire   []byte
	tag    uint64
	at     time.Duration
	number uint64 // the value of Early.count when it was added
	from   *sockets.Peer
	place  list.Element[earlyUpdate] // in order
	turn   list.Element[earlyUpdate] // in that of froms
}

// idOf returns the UUID of a record, and false if it has none.
func idOf(record []byte) (id updateID, ok bool) {
	at := 2 + int(record[1]) + 2 + kvmsg.SequenceSize // keys from the wire are short
	if record[at+1] != kvmsg.UUIDSize {
		return id, false
	}
	return updateID(record[at+2:][:kvmsg.UUIDSize]), true
}

// Empty reports whether there are neither updates nor remembered UUIDs.
func (e *Early) Empty() bool { return e.order.Len() == 0 && e.seen.empty() }

// Len returns the numbers of updates and of remembered UUIDs.
func (e *Early) Len() (updates, published int) {
	return e.order.Len(), len(e.seen.newer) + len(e.seen.older)
}

// keep adds updates that arrived on a connection.
func (e *Early) keep(from *sockets.Peer, wire []byte, spans []buf.Span, now time.Duration) {
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

func (e *Early) add(u *earlyUpdate) {
	if e.byID == nil {
		e.byID, e.froms = map[updateID]*earlyUpdate{}, map[*sockets.Peer]*list.List[earlyUpdate]{}
	}
	e.count++
	u.number = e.count
	u.place.Of, u.turn.Of = u, u
	e.order.PushBack(&u.place)
	e.byID[u.id] = u
	if e.froms[u.from] == nil {
		e.froms[u.from] = new(list.List[earlyUpdate])
	}
	e.froms[u.from].PushBack(&u.turn)
	for e.bytes += u.size(); e.bytes > earlyBytes && e.order.Len() > 1; {
		e.drop(e.order.Front())
	}
}

func (u *earlyUpdate) size() int { return earlyOverhead + len(u.wire) }

// drop removes an update.
func (e *Early) drop(u *earlyUpdate) {
	u.place.Remove()
	u.turn.Remove()
	if e.froms[u.from].Len() == 0 {
		delete(e.froms, u.from)
	}
	delete(e.byID, u.id)
	e.bytes -= u.size()
}

// dropFrom removes all updates of a connection.
func (e *Early) dropFrom(from *sockets.Peer) {
	for q := e.froms[from]; q != nil; q = e.froms[from] {
		e.drop(q.Front())
	}
}

// Published handles records of the active server.
func (e *Early) Published(wire []byte, spans []buf.Span, now time.Duration) {
	for _, s := range spans {
		if id, ok := idOf(wire[s.Start:s.End]); ok {
			e.note(id, now)
		}
	}
}

// note records that the active server has published an update.
func (e *Early) note(id updateID, now time.Duration) {
	u := e.byID[id]
	if u == nil {
		e.seen.note(id, now, e.Timeout)
		return
	}
	for q := e.froms[u.from]; q.Front() != u; {
		e.drop(q.Front())
	}
	e.drop(u)
}

// Count returns the number of updates that were added since the start.
func (e *Early) Count() uint64 { return e.count }

// Copied is called when this server has copied the active server's map. number is what
// Count returned when the transfer began: updates added before are in the map, or were
// replaced or refused there. seen are updates in the map.
func (e *Early) Copied(number uint64, seen *Seen, now time.Duration) {
	for u := e.order.Front(); u != nil && u.number <= number; u = e.order.Front() {
		e.drop(u)
	}
	for _, ids := range []map[updateID]struct{}{seen.older, seen.newer} {
		for id := range ids {
			e.note(id, now)
		}
	}
}

// fresh removes updates that are remembered as published, and returns the others in the
// memory of spans.
func (e *Early) fresh(wire []byte, spans []buf.Span) []buf.Span {
	kept := spans[:0]
	for _, s := range spans {
		if id, ok := idOf(wire[s.Start:s.End]); ok && e.seen.remove(id) {
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

// Expire removes updates that are too old. heard is the time at which the active server
// was last heard, or 0: while it is silent, updates wait for a takeover.
func (e *Early) Expire(now, heard time.Duration) {
	for u := e.order.Front(); u != nil && (u.at < heard-earlyAges*e.Timeout || u.at < now-maxEarlyAge); u = e.order.Front() {
		e.drop(u)
	}
	e.seen.expire(now, e.Timeout)
}

// Drain removes all updates, and returns those that are not too old, in order of
// arrival, with their remaining times to live. An update whose time is over gets one
// nanosecond: it must still replace the previous value.
func (e *Early) Drain(now time.Duration) (wire []byte, spans []buf.Span) {
	e.Expire(now, 0)
	for u := e.order.Front(); u != nil; u = e.order.Front() {
		left := time.Duration(0)
		if ttl := kvmsg.TTLOf(kvmsg.Record(u.wire).Props()); ttl > 0 {
			left = max(ttl-(now-u.at), 1)
		}
		start := len(wire)
		wire = kvmsg.AppendAged(wire, u.wire, left)
		spans = append(spans, buf.Span{Start: uint32(start), End: uint32(len(wire)), Tag: u.tag})
		e.drop(u)
	}
	return wire, spans
}

// Seen is a bounded set of the UUIDs of published updates. It consists of two
// generations. A UUID is forgotten after seenAges to twice seenAges time-outs, or
// earlier when more than maxSeen have followed it.
type Seen struct {
	newer, older map[updateID]struct{}
	began        time.Duration // when newer was started
}

func (s *Seen) empty() bool { return len(s.newer)+len(s.older) == 0 }

// note adds an update.
func (s *Seen) note(id updateID, now, timeout time.Duration) {
	if len(s.newer) >= maxSeen {
		s.turn(now)
	}
	s.expire(now, timeout)
	if s.newer == nil {
		s.newer, s.began = map[updateID]struct{}{}, now
	}
	s.newer[id] = struct{}{}
}

// remove removes an update and reports whether it was there. Each has only one other
// copy.
func (s *Seen) remove(id updateID) bool {
	_, newer := s.newer[id]
	_, older := s.older[id]
	delete(s.newer, id)
	delete(s.older, id)
	return newer || older
}

// expire starts a new generation if the current one is old enough.
func (s *Seen) expire(now, timeout time.Duration) {
	if now-s.began < seenAges*timeout {
		return
	}
	if !s.empty() {
		s.turn(now)
	}
	s.began = now
}

func (s *Seen) turn(now time.Duration) { s.older, s.newer, s.began = s.newer, nil, now }

// Published adds the updates of records, whenever they were published.
func (s *Seen) Published(wire []byte, spans []buf.Span) {
	for _, span := range spans {
		// Version 8 means a client of this module.
		if id, ok := idOf(wire[span.Start:span.End]); ok && id[6]>>4 != 8 {
			s.note(id, 0, time.Hour)
		}
	}
}

// Filter returns the updates of a batch that arrived at now and that the server should
// accept. On a passive server these are none, and updates of other implementations are
// kept.
func (e *Early) Filter(b *hooks.Batch, passive bool, now time.Duration) []buf.Span {
	peer := (*sockets.Peer)(b.Peer())
	ours := IsClient(peer)
	switch {
	case passive:
		if !ours {
			e.keep(peer, b.Wire(), b.Spans(), now)
		}
		return nil
	case ours:
		return b.Spans()
	}
	return e.fresh(b.Wire(), b.Spans())
}
