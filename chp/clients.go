package chp

import (
	"encoding/binary"
	"slices"
	"sort"

	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// A client of this package numbers its updates 1, 2, 3 … in the order in which it
// sends them. It repeats updates that a connection may have lost, in the same order
// and with the same numbers. A server applies each number once.
//
// Over one connection numbers arrive in order and without gaps. A new session starts
// no later than after the last number that the server reports. So even if connections of
// a client deliver updates late, the server has always accepted all numbers up to some
// counter, and one counter per client is enough.

// clientID is a client's identity (propertyClient).
type clientID [clientIDSize / 2]byte

// origins holds the progress of each client: the counter of its numbered updates. It is
// bounded; the client that has sent nothing for the longest time is forgotten first. It
// is not safe for concurrent use.
type origins struct {
	byID map[clientID]*progress
	used progress // head of a ring; next is the most recently used one

	// forgotten is the highest progress.at of all forgotten clients. An unknown client
	// whose first update has a higher sequence was not forgotten.
	forgotten int64
}

// maxOrigins bounds the clients in origins: about 10 MB.
const maxOrigins = 1 << 16

// progress is the progress of one client.
type progress struct {
	id         clientID
	counter    uint64 // all numbers up to this one were accepted or skipped
	at         int64  // sequence of the map when the last one was accepted
	skips      []skip // numbers that were not applied, in order
	missed     uint64 // if above counter: the first number that was not accepted, see miss
	prev, next *progress
}

// skip is a range of order numbers of updates that were not applied: the server refused
// them, or they were sent to another server.
type skip struct {
	first, last uint64
	reason      Reason // of the refusal, or one of those below
}

const (
	// skipUnknown means that the reason is not known.
	skipUnknown Reason = 0xFD
	// skipSome means that an unknown part of the range was not applied.
	skipSome Reason = 0xFF
)

// maxSkips bounds the ranges of one client. Beyond it the two oldest are merged into
// one with skipSome.
const maxSkips = 64

// find returns a client's progress, or nil.
func (o *origins) find(id clientID) *progress { return o.byID[id] }

// use returns a client's progress, which it creates if necessary and makes the most
// recently used.
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

// note sets a client's counter from a log or the active server: updates of its updates
// were applied as one batch after sequence at. If that leaves numbers out, some of them
// were skipped. A counter that is not above the present one changes nothing.
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

// applied returns what the server tells a client about its progress, for the map with an
// identity.
func (o *origins) applied(id clientID, mapID [mapIDSize]byte) *applied {
	a := &applied{mapID: mapID, forgotten: o.forgotten}
	if p := o.find(id); p != nil {
		a.known, a.counter, a.skips = true, p.counter, p.skips
	}
	return a
}

// clear forgets all clients and the sequence forgotten.
func (o *origins) clear() {
	*o = origins{byID: map[clientID]*progress{}}
	o.used.prev, o.used.next = &o.used, &o.used
}

// skip records that the numbers from first to last were not applied.
func (p *progress) skip(first, last uint64, reason Reason) {
	i := len(p.skips)
	for i > 0 && p.skips[i-1].first > first {
		i--
	}
	if i > 0 {
		switch before := &p.skips[i-1]; {
		case before.last >= last:
			return // already in a range with skipSome
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

// once removes the updates of a client that were accepted before, marks the others as
// accepted and returns them in the memory of spans. Their numbers increase, or are all
// 0: see numberOrder. at is the sequence of the map's last update.
func (o *origins) once(id clientID, wire []byte, spans []sockets.Span, at int64) []sockets.Span {
	number := func(i int) uint64 { return uint64(kvmsg.Record(wire[spans[i].Start:spans[i].End]).Seq()) }
	if len(spans) == 0 || number(0) == 0 {
		return spans
	}
	p := o.use(id)
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
	p.counter, p.at = last, at
	return spans
}

// refuse records that updates that once returned are not applied, for a reason.
func (o *origins) refuse(id clientID, wire []byte, spans []sockets.Span, reason Reason) {
	p := o.use(id)
	for _, span := range spans {
		if n := uint64(kvmsg.Record(wire[span.Start:span.End]).Seq()); n > 0 {
			p.skip(n, n, reason)
		}
	}
}

// miss records that updates were not accepted because the server is not active. If it
// soon becomes active again, it must not accept later updates from the same connection
// before the client has sent these again: they would count as skipped. miss reports
// whether the updates have numbers.
func (o *origins) miss(id clientID, wire []byte, spans []sockets.Span) bool {
	if len(spans) == 0 {
		return false
	}
	n := uint64(kvmsg.Record(wire[spans[0].Start:]).Seq())
	if n == 0 {
		return false
	}
	if p := o.use(id); p.missed <= p.counter || n < p.missed {
		p.missed = n
	}
	return true
}

// numberOrder checks the order numbers of a batch: they increase, or are all 0.
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

// mapIDSize is the size of the identity of a map.
const mapIDSize = 16

// keyApplied is the first frame of the message that reports the progress of a client's
// numbered updates. A server sends it on the snapshot connection: before the answer to
// a session's first request, after updates that were repeated, and each time that it
// has received as many bytes of updates as propertyOrder says. Frames:
//
//	APPLIED
//	map id      16 bytes: the identity of the map
//	counter     8 bytes: the highest order number accepted; empty if the server does
//	            not know the client
//	forgotten   8 bytes: the server may have forgotten a client whose last update
//	            has at most this sequence, and no other
//	skipped     17 bytes each: the first and the last number of a range of updates
//	            that were not applied, and one byte, the Reason, 253 if it is not
//	            known, or 255 if only some in the range were not applied
//
// Numbers are big-endian. All updates up to the counter, except the skipped ones, have
// been applied and published.
const keyApplied = "APPLIED"

// applied is the content of that message.
type applied struct {
	mapID     [mapIDSize]byte
	known     bool
	counter   uint64
	forgotten int64
	skips     []skip
}

// maxOrder is the highest counter that a client accepts from a server. Higher numbers
// are reserved.
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

// isApplied reports whether a message begins with the frames of APPLIED. A KVSYNC of a
// key with that name has the same first frame; its second frame is shorter.
func isApplied(m zmtp.WireMessage) bool {
	const header = 2 + len(keyApplied)
	return len(m) > header+2 && m[0] == kvmsg.FlagMore && int(m[1]) == len(keyApplied) && string(m[2:header]) == keyApplied &&
		m[header] == kvmsg.FlagMore && m[header+1] == mapIDSize
}

func parseApplied(m zmtp.WireMessage) (a *applied, ok bool) {
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

// skipped reports whether number n was not applied, and why.
func (a *applied) skipped(n uint64) (reason Reason, ok bool) {
	i := sort.Search(len(a.skips), func(i int) bool { return a.skips[i].last >= n })
	if i == len(a.skips) || a.skips[i].first > n {
		return 0, false
	}
	return a.skips[i].reason, true
}
