package chp

import (
	"context"
	"encoding/binary"
	"slices"
	"sort"

	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// A client of this package numbers its updates 1, 2, 3 … in the order in which it
// sends them, and repeats what a connection may have lost, in the same order and
// with the same numbers. A server applies each number once.
//
// Over one connection numbers arrive in order and without gaps, and a new session
// begins no later than where the server says that it is. So whatever the connections
// of one client deliver, and however late, what the server has taken is always all
// numbers up to some counter. One counter a client is all that must be remembered.

// clientID is a client's identity (propertyClient).
type clientID [clientIDSize / 2]byte

// sender says whose updates a batch has. The zero sender numbers nothing.
type sender struct {
	id       clientID
	numbered bool    // the sequence fields hold order numbers, or 0
	every    int     // tell its progress after so many bytes of updates, 0: never
	member   *member // nil if it is not known any more
}

// origins knows how far each client has come: the counter of its numbered updates.
// It is bounded; the client that has sent nothing for longest is forgotten first.
// It is not safe for concurrent use.
type origins struct {
	byID map[clientID]*progress
	used progress // head of a ring: next is the one that was used last

	// forgotten is the highest sequence at which a client was last heard of that
	// was forgotten: an unknown client whose first update is later has not been
	// forgotten.
	forgotten int64
}

// maxOrigins bounds the clients in origins: some 10 MB.
const maxOrigins = 1 << 16

// progress is how far one client has come.
type progress struct {
	id         clientID
	counter    uint64 // every number up to this one has been taken, or skipped
	at         int64  // sequence of the map when the last one was taken
	skips      []skip // numbers that were not applied, in their order
	missed     uint64 // if above counter: the first number that was left out, see miss
	prev, next *progress
}

// skip is a range of order numbers of updates that were not applied: the server
// refused them, or they were meant for another server.
type skip struct {
	first, last uint64
	reason      Reason // of the refusal, or one of those below
}

const (
	// skipUnknown: why is not known.
	skipUnknown Reason = 0xFD
	// skipSome: some updates in the range were not applied; which ones is not known.
	skipSome Reason = 0xFF
)

// maxSkips bounds the ranges of one client. Beyond it the oldest become one in which
// some were skipped.
const maxSkips = 64

// find returns a client's progress, or nil.
func (o *origins) find(id clientID) *progress { return o.byID[id] }

// use returns a client's progress, which it makes if there is none, and which has
// been used last now.
func (o *origins) use(id clientID) *progress {
	if o.byID == nil {
		o.clear()
	}
	p := o.byID[id]
	if p != nil && o.used.next == p {
		return p
	}
	if p == nil {
		for len(o.byID) >= maxOrigins {
			oldest := o.used.prev
			o.unlink(oldest)
			delete(o.byID, oldest.id)
			o.forgotten = max(o.forgotten, oldest.at)
		}
		p = &progress{id: id}
		o.byID[id] = p
	} else {
		o.unlink(p)
	}
	p.prev, p.next = &o.used, o.used.next
	p.next.prev, o.used.next = p, p
	return p
}

func (o *origins) unlink(p *progress) { p.prev.next, p.next.prev = p.next, p.prev }

// note sets a client's counter, as a log tells of it: updates of them were applied as
// one batch behind sequence at. If that leaves numbers out, some were skipped. A
// counter that is not above the present one changes nothing.
func (o *origins) note(id clientID, counter uint64, updates int, at int64) {
	p := o.use(id)
	if counter <= p.counter {
		return
	}
	if counter-p.counter != uint64(updates) {
		p.skip(p.counter+1, counter, skipSome)
	}
	p.counter, p.at = counter, max(p.at, at)
}

// clear forgets all clients, and that there were any.
func (o *origins) clear() {
	*o = origins{byID: map[clientID]*progress{}}
	o.used.prev, o.used.next = &o.used, &o.used
}

// skip notes that the numbers from first to last were not applied.
func (p *progress) skip(first, last uint64, reason Reason) {
	i := len(p.skips)
	for i > 0 && p.skips[i-1].first > first {
		i--
	}
	if i > 0 {
		switch before := &p.skips[i-1]; {
		case before.last >= last:
			return // in a range of which it is not known what was skipped
		case before.reason == reason && before.last+1 == first:
			before.last = last
			return
		}
	}
	p.skips = slices.Insert(p.skips, i, skip{first, last, reason})
	if len(p.skips) > maxSkips {
		p.skips[1].first, p.skips[1].reason = p.skips[0].first, skipSome
		p.skips = slices.Delete(p.skips, 0, 1)
	}
}

// once returns those of a client's updates, in spans' own memory, that have not been
// taken before, and takes them. Their numbers rise, or are all 0: see
// numberOrder. mu of the sequencer must be held.
func (q *sequencer) once(id clientID, wire []byte, spans []sockets.Span) []sockets.Span {
	number := func(i int) uint64 { return uint64(kvmsg.Record(wire[spans[i].Start:spans[i].End]).Seq()) }
	if len(spans) == 0 || number(0) == 0 {
		return spans
	}
	p := q.origins.use(id)
	last := number(len(spans) - 1)
	if mutate.NoRepeatCheck {
		p.counter = max(p.counter, last)
		return spans
	}
	if last <= p.counter || p.missed > p.counter && number(0) > p.missed {
		return nil
	}
	if number(0) <= p.counter {
		spans = spans[sort.Search(len(spans), func(i int) bool { return number(i) > p.counter }):]
	}
	if last-p.counter != uint64(len(spans)) { // some were refused before they came here
		next := p.counter + 1
		for i := range spans {
			n := number(i)
			if n > next {
				p.skip(next, n-1, skipUnknown)
			}
			next = n + 1
		}
	}
	p.counter, p.at = last, q.last.Load()
	return spans
}

// skip notes that updates which once has returned are not applied, since the map is
// full. mu of the sequencer must be held.
func (q *sequencer) skip(id clientID, wire []byte, unfit []sockets.Span) {
	p := q.origins.use(id)
	for _, span := range unfit {
		if n := uint64(kvmsg.Record(wire[span.Start:span.End]).Seq()); n > 0 {
			p.skip(n, n, ReasonMapFull)
		}
	}
}

// miss notes that updates are left out because the server is not active. If it is soon
// active again, what comes behind them over the same connection must not be taken
// before the client has sent them again: they would count as skipped. It reports
// whether the updates have numbers. mu of the sequencer must be held.
func (q *sequencer) miss(id clientID, wire []byte, spans []sockets.Span) bool {
	if len(spans) == 0 {
		return false
	}
	n := uint64(kvmsg.Record(wire[spans[0].Start:]).Seq())
	if n == 0 {
		return false
	}
	if p := q.origins.use(id); p.missed <= p.counter || n < p.missed {
		p.missed = n
	}
	return true
}

// numberOrder checks the order numbers of a batch one by one: they rise, or all are 0.
type numberOrder struct {
	begun   bool
	last    uint64
	ignored bool // the client does not number its updates
}

// next reports whether the next number is in order.
func (o *numberOrder) next(n uint64) bool {
	if o.begun && (n <= o.last || o.last == 0) && n|o.last != 0 {
		return false
	}
	o.begun, o.last = true, n
	return true
}

// matters says whether it matters that a number is not in order: from a client that
// numbers its updates it does.
func (o *numberOrder) matters(p *sockets.Peer) bool {
	if !o.ignored {
		o.ignored = !senderOf(p, nil).numbered
	}
	return !o.ignored
}

// setMapID sets the identity of the map: two servers, or two runs of one, have the
// same if the one goes on with the other's map and origins.
func (s *Server) setMapID(id [mapIDSize]byte) {
	s.sequencer.mu.Lock()
	s.sequencer.mapID = id
	s.sequencer.mu.Unlock()
}

// applied returns the message that tells a client how far its updates have come,
// in wire form. It may be sent once everything up to sequence is published.
func (s *Server) applied(id clientID) (wire []byte, sequence int64) {
	q := &s.sequencer
	q.mu.Lock()
	defer q.mu.Unlock()
	a := applied{mapID: q.mapID, forgotten: q.origins.forgotten}
	if p := q.origins.find(id); p != nil {
		a.known, a.counter, a.skips = true, p.counter, p.skips
	}
	if mutate.NoRepeatCheck {
		a.known, a.counter = true, 0
	}
	return appendApplied(nil, &a), q.last.Load()
}

// appliedSoon is applied, and waits until the message may be sent.
func (s *Server) appliedSoon(ctx context.Context, id clientID) ([]byte, error) {
	wire, sequence := s.applied(id)
	for more := s.sequencer.unpublished(sequence); more != nil; more = s.sequencer.unpublished(sequence) {
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return wire, nil
}

// mapIDSize is the size of the identity of a map.
const mapIDSize = 16

// keyApplied is the first frame of the message that tells a client how far its
// numbered updates have come. A server sends it on the snapshot connection: before
// the answer to a session's first request, later whenever it was sent something a
// second time, and after every so many bytes of updates that the client asked for
// (propertyOrder). Frames:
//
//	APPLIED
//	map id      16 bytes: the identity of the map
//	counter     8 bytes: the highest order number taken; empty if the server does
//	            not know the client
//	forgotten   8 bytes: the server may have forgotten a client whose last update
//	            has at most this sequence, and no other
//	skipped     17 bytes each: the first and the last number of a range of updates
//	            that were not applied, and one byte, the Reason, 253 if it is not
//	            known, or 255 if only some in the range were not applied
//
// Numbers are big-endian. All updates up to the counter, but for those skipped, have
// been applied and published.
const keyApplied = "APPLIED"

// applied is what that message says.
type applied struct {
	mapID     [mapIDSize]byte
	known     bool
	counter   uint64
	forgotten int64
	skips     []skip
}

// maxOrder is the highest counter that a client believes: beyond it the server is
// not to be trusted, and numbers above it are kept for others.
const maxOrder = 1 << 62

const skipSize = 8 + 8 + 1

func appendApplied(dst []byte, a *applied) []byte {
	var counter []byte
	if a.known {
		counter = binary.BigEndian.AppendUint64(nil, a.counter)
	}
	forgotten := binary.BigEndian.AppendUint64(nil, uint64(a.forgotten))
	return zmtp.AppendMessage(dst, []byte(keyApplied), a.mapID[:], counter, forgotten, appendSkips(nil, a.skips))
}

func appendSkips(dst []byte, skips []skip) []byte {
	for _, s := range skips {
		dst = binary.BigEndian.AppendUint64(dst, s.first)
		dst = binary.BigEndian.AppendUint64(dst, s.last)
		dst = append(dst, byte(s.reason))
	}
	return dst
}

// isApplied says whether a message has APPLIED's first frame and number of frames.
// A KVSYNC of a key with that name has the same; its second frame is shorter.
func isApplied(m zmtp.Message) bool {
	const header = 2 + len(keyApplied)
	return len(m) > header+2 && m[0] == kvmsg.FlagMore && int(m[1]) == len(keyApplied) && string(m[2:header]) == keyApplied &&
		m[header] == kvmsg.FlagMore && m[header+1] == mapIDSize
}

// parseApplied reads the message.
func parseApplied(m zmtp.Message) (a *applied, ok bool) {
	if m.Len() != 5 {
		return nil, false
	}
	key, m := m.Next()
	id, m := m.Next()
	counter, m := m.Next()
	forgotten, m := m.Next()
	skips, _ := m.Next()
	if string(key) != keyApplied || len(id) != mapIDSize || len(counter)&^8 != 0 || len(forgotten) != 8 {
		return nil, false
	}
	a = &applied{mapID: [mapIDSize]byte(id), forgotten: int64(binary.BigEndian.Uint64(forgotten))}
	if a.known = len(counter) > 0; a.known {
		a.counter = binary.BigEndian.Uint64(counter)
	}
	a.skips, ok = parseSkips(skips)
	return a, ok && a.counter <= maxOrder
}

func parseSkips(b []byte) (skips []skip, ok bool) {
	if len(b)%skipSize != 0 || len(b)/skipSize > maxSkips {
		return nil, false
	}
	for ; len(b) > 0; b = b[skipSize:] {
		skips = append(skips, skip{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), Reason(b[16])})
	}
	return skips, true
}

// skipped returns why number n was not applied, if it was not.
func (a *applied) skipped(n uint64) (reason Reason, ok bool) {
	i := sort.Search(len(a.skips), func(i int) bool { return a.skips[i].last >= n })
	if i == len(a.skips) || a.skips[i].first > n {
		return 0, false
	}
	return a.skips[i].reason, true
}
