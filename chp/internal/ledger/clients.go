package ledger

import (
	"encoding/binary"
	"slices"
	"sort"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/list"
	"clustermap/internal/mutate"
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

// ID is a client's identity, which it says when it connects.
type ID [16]byte

// nodeMark is what the identity of a node of a cluster begins with, which numbers updates for clients that do not.
const nodeMark = "chp node"

// NodeID returns the identity of a node, given 8 bytes of its own.
func NodeID(own []byte) (id ID) {
	copy(id[copy(id[:], nodeMark):], own)
	return id
}

// IsNode reports whether an identity is that of a node.
func (id ID) IsNode() bool { return string(id[:len(nodeMark)]) == nodeMark }

// Clients holds the progress of each client: the counter of its numbered updates. It is
// bounded; the client that has sent nothing for the longest time is forgotten first. It
// is not safe for concurrent use.
type Clients struct {
	ByID map[ID]*Progress
	used list.List[Progress] // the most recently used one first

	// forgotten is the highest Progress.at of all forgotten clients, and at least 1; or 0 if none was
	// forgotten. See forgotSince.
	forgotten int64

	runs int // of requests, of all clients
}

// Progress is the progress of one client.
type Progress struct {
	id      ID
	counter uint64                 // all numbers up to this one are in the map, or were skipped
	ordered uint64                 // all up to this one are ordered or skipped; not below counter
	at      int64                  // sequence of the map before the last one in it
	Skips   []Skip                 // numbers that were not applied, in order, up to ordered
	runs    []Run                  // where the last of those in the map are, since this server knows it
	missed  uint64                 // if above ordered: the first number that was not accepted, see Miss
	made    []made                 // its requests in the map, by number; the last Window of them
	newest  uint64                 // the highest number of those
	lost    int64                  // the highest sequence of those that were forgotten, and that it may ask for
	place   list.Element[Progress] // in Clients.used

	generation uint64 // the highest one; see Latest
}

// Skip is a range of order numbers of updates that were not applied: the server refused
// them, or they were sent to another server.
type Skip struct {
	first, Last uint64
	reason      kvmsg.Reason // of the refusal, or one of those below
}

const (
	// SkipUnknown means that the reason is not known.
	SkipUnknown kvmsg.Reason = 0xFD
	// SkipSome means that an unknown part of the range was not applied.
	SkipSome kvmsg.Reason = 0xFF
)

// Run says where the updates behind the run before, and up to number Last, are in the
// server's order: consecutive ones have consecutive sequences, without the skipped ones, and
// the last one has the sequence seq. If runs are missing before it, the sequences of
// their updates are lower than that.
type Run struct {
	Last uint64
	seq  int64
}

// sequence returns the sequence of number n, given what was skipped.
func (r Run) sequence(n uint64, skips []Skip) int64 {
	return min(r.seq, r.seq-int64(r.Last-n)+int64(skippedBetween(skips, n, r.Last)))
}

// upTo returns the highest number of the run, or before it, whose sequence is not above
// one that is below seq.
func (r Run) upTo(sequence int64, skips []Skip) uint64 {
	for n, after := r.Last, uint64(r.seq-sequence); ; {
		beyond := after + skippedBetween(skips, n, r.Last)
		if beyond >= r.Last {
			return 0
		}
		if r.Last-beyond == n {
			return n
		}
		n = r.Last - beyond
	}
}

// use returns a client's progress, which it creates if necessary and makes the most
// recently used.
func (o *Clients) use(id ID) *Progress {
	if p := o.used.Front(); p != nil && p.id == id {
		return p // nearly always
	}
	p := o.ByID[id]
	if p == nil {
		for len(o.ByID) >= maxOrigins {
			o.forget(o.used.Back())
		}
		if o.ByID == nil {
			o.ByID = map[ID]*Progress{}
		}
		p = &Progress{id: id}
		p.place.Of = p
		o.ByID[id] = p
	}
	p.place.Remove()
	o.used.PushFront(&p.place)
	return p
}

// forgotSince reports whether a client that is unknown, and whose updates all came after the map had a
// sequence, may be one of those that were forgotten, given Clients.forgotten. In a new map that
// sequence is 0, and none was.
func forgotSince(forgotten, since int64) bool { return forgotten > 0 && forgotten >= since }

// forget forgets a client.
func (o *Clients) forget(p *Progress) {
	p.place.Remove()
	delete(o.ByID, p.id)
	o.forgotten = max(o.forgotten, p.at, 1)
	o.runs -= len(p.made)
}

// Note records that updates of a client, the last one with the number counter, are in the map
// as one batch, after the sequence at. If that leaves numbers out that are not known to be
// skipped, some of them were. A counter that is not above the present one changes nothing.
func (o *Clients) Note(id ID, counter uint64, updates int, at int64) {
	p := o.use(id)
	if counter <= p.counter {
		return
	}
	if missing := counter - p.counter - uint64(updates); missing != 0 && missing != skippedBetween(p.Skips, p.counter, counter) {
		p.skip(p.counter+1, counter, SkipSome)
	}
	p.extend(Run{counter, at + int64(updates)}, at)
	p.counter, p.at = counter, max(p.at, at)
	p.ordered = max(p.ordered, counter)
	p.settle()
}

// extend adds a run of updates that are in the map after the sequence at.
func (p *Progress) extend(r Run, at int64) {
	if n := len(p.runs); n > 0 && p.runs[n-1].seq == at {
		p.runs[n-1] = r
		return
	} else if n == maxRuns {
		p.runs = slices.Delete(p.runs, 0, 1)
	}
	p.runs = append(p.runs, r)
}

// settle moves the counter past numbers that were skipped and follow it, and the last run with
// it.
func (p *Progress) settle() {
	for _, s := range p.Skips {
		if s.first <= p.counter+1 && s.Last > p.counter {
			p.counter = s.Last
		}
	}
	if n := len(p.runs); n > 0 {
		p.runs[n-1].Last = p.counter
	}
}

// skippedBetween returns how many numbers above after and up to last are known to be skipped.
func skippedBetween(skips []Skip, after, last uint64) (n uint64) {
	for _, s := range skips {
		if first, end := max(s.first, after+1), min(s.Last, last); first <= end {
			n += end - first + 1
		}
	}
	return n
}

// settled returns the skipped numbers up to the counter.
func (p *Progress) settled() []Skip {
	n := sort.Search(len(p.Skips), func(i int) bool { return p.Skips[i].first > p.counter })
	if n == 0 || p.Skips[n-1].Last <= p.counter {
		return p.Skips[:n]
	}
	all := slices.Clone(p.Skips[:n])
	all[n-1].Last = p.counter
	return all
}

// Reply returns what the server tells a client about its progress, for the map with an
// identity, in memory of the clients: it is valid until their next change.
func (o *Clients) Reply(id ID, mapID [MapIDSize]byte) Reply {
	a := Reply{mapID: mapID, forgotten: o.forgotten, Runs: []Run{}}
	if p := o.ByID[id]; p != nil {
		// One that has only made requests may have been forgotten before.
		a.Known, a.Counter, a.skips = p.counter > 0 || len(p.made) == 0, p.counter, p.settled()
		if len(p.runs) > 0 {
			a.Runs = p.runs
		}
	}
	return a
}

// SequenceOf returns the sequence of the update with number n, or one if that is not known.
func (a *Reply) SequenceOf(n uint64, otherwise int64) int64 {
	i := sort.Search(len(a.Runs), func(i int) bool { return a.Runs[i].Last >= n })
	if i == len(a.Runs) {
		return otherwise
	}
	return a.Runs[i].sequence(n, a.skips)
}

// Limit removes from a reply what is about updates behind number n.
func (a *Reply) Limit(n uint64) {
	if a.Counter <= n {
		return
	}
	if i := sort.Search(len(a.Runs), func(i int) bool { return a.Runs[i].Last >= n }); i < len(a.Runs) {
		runs := slices.Clone(a.Runs[:i+1])
		runs[i] = Run{n, runs[i].sequence(n, a.skips)}
		if i > 0 && runs[i].seq <= runs[i-1].seq { // all of the run that are left were skipped
			runs = runs[:i]
		}
		a.Runs = runs
	}
	i := sort.Search(len(a.skips), func(i int) bool { return a.skips[i].Last > n })
	if i < len(a.skips) && a.skips[i].first <= n {
		part := a.skips[i]
		part.Last = n
		a.skips = append(slices.Clone(a.skips[:i]), part)
	} else {
		a.skips = a.skips[:i]
	}
	a.Counter = n
}

// skip records that the numbers from first to last were not applied.
func (p *Progress) skip(first, last uint64, reason kvmsg.Reason) {
	i := len(p.Skips)
	for i > 0 && p.Skips[i-1].first > first {
		i--
	}
	if i > 0 {
		switch before := &p.Skips[i-1]; {
		case before.Last >= last:
			return // already in a range with SkipSome
		case before.reason == reason && before.Last+1 == first:
			before.Last = last
			return
		}
	}
	p.Skips = slices.Insert(p.Skips, i, Skip{first, last, reason})
	if len(p.Skips) > maxSkips {
		p.Skips[1].first, p.Skips[1].reason = p.Skips[0].first, SkipSome
		p.Skips = slices.Delete(p.Skips, 0, 1)
	}
}

// Once removes the updates of a client that were ordered before, marks the others as
// ordered and returns them in the memory of spans. They must be either refused, or in the
// map, by Refuse and Note, before later ones of the client are. Their numbers increase, or
// are all 0.
func (o *Clients) Once(id ID, wire []byte, spans []buf.Span) []buf.Span {
	number := func(i int) uint64 { return uint64(kvmsg.Record(wire[spans[i].Start:spans[i].End]).Seq()) }
	if len(spans) == 0 || number(0) == 0 {
		return spans
	}
	p := o.use(id)
	last := number(len(spans) - 1)
	if mutate.NoRepeatCheck {
		p.ordered = max(p.ordered, last)
		return spans
	}
	if last <= p.ordered || p.missed > p.ordered && number(0) > p.missed {
		return nil
	}
	if number(0) <= p.ordered {
		spans = spans[sort.Search(len(spans), func(i int) bool { return number(i) > p.ordered }):]
	}
	if last-p.ordered != uint64(len(spans)) { // some were refused before they came here
		next := p.ordered + 1
		for i := range spans {
			n := number(i)
			if n > next {
				p.skip(next, n-1, SkipUnknown)
			}
			next = n + 1
		}
	}
	p.ordered = last
	return spans
}

// Refuse records that updates that Once returned are not applied, for the reasons that are their tags.
func (o *Clients) Refuse(id ID, wire []byte, spans []buf.Span) {
	p := o.use(id)
	for _, span := range spans {
		if n := uint64(kvmsg.Record(wire[span.Start:span.End]).Seq()); n > 0 {
			p.skip(n, n, kvmsg.Reason(span.Tag))
		}
	}
	p.settle()
}

// Miss records that updates were not accepted because the server is not active. If it
// soon becomes active again, it must not accept later updates from the same connection
// before the client has sent these again: they would count as skipped. Miss reports
// whether the updates have numbers.
func (o *Clients) Miss(id ID, wire []byte, spans []buf.Span) bool {
	if len(spans) == 0 {
		return false
	}
	n := uint64(kvmsg.Record(wire[spans[0].Start:]).Seq())
	if n == 0 {
		return false
	}
	if p := o.use(id); p.missed <= p.ordered || n < p.missed {
		p.missed = n
	}
	return true
}

// Latest reports whether no request of the client came over a later connection than one of a generation. So it is for all
// that come to one server, in whatever order, while that knows the client.
func (o *Clients) Latest(id ID, generation uint64) bool {
	p := o.use(id)
	if generation < p.generation {
		return false
	}
	p.generation = generation
	return true
}

// Revert makes all updates that were ordered and are not in the map such that were not: they are lost.
func (o *Clients) Revert() {
	for _, p := range o.ByID {
		p.ordered, p.missed, p.Skips = p.counter, 0, p.settled()
	}
}

// Reorder records that the updates of a client up to one are ordered: those that Revert was not meant for.
func (o *Clients) Reorder(id ID, counter uint64) {
	p := o.use(id)
	p.ordered = max(p.ordered, counter)
}

// MapIDSize is the size of the identity of a map.
const MapIDSize = 16

// keyApplied is the first frame of the message that reports the progress of a client's
// numbered updates. A server sends it on the snapshot connection: before the answer to
// a session's first request, after updates that were repeated, each time that it has
// received as many bytes of updates as propertyOrder says, and when the client asks
// (Question). Frames:
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
//	runs        only to clients that announce propertyReplies, 16 bytes each: the last
//	            number of a Run, and its sequence
//
// Numbers are big-endian. All updates up to the counter, except the skipped ones, have
// been applied and published.
const keyApplied = "APPLIED"

// Question is the message with which a client asks for a reply, among its updates: that says
// what has become of all those before it. So updates for which nothing waits cost the server
// no reply each.
var Question = zmtp.AppendFrame(nil, []byte("APPLIED?"), false) // not changed

// IsQuestion reports whether a message is a question.
func IsQuestion(m zmtp.WireMessage) bool { return string(m) == string(Question) }

// Reply is the content of that message.
type Reply struct {
	mapID     [MapIDSize]byte
	Known     bool
	Counter   uint64
	forgotten int64
	skips     []Skip
	Runs      []Run // the newest ones, in order; nil if the server does not tell them
}

// Map returns the identity of the map.
func (a *Reply) Map() [MapIDSize]byte { return a.mapID }

const (
	skipSize = 8 + 8 + 1
	runSize  = 8 + 8
)

// AppendReply appends a reply in wire form.
func AppendReply(dst []byte, a *Reply) []byte {
	const more = zmtp.FlagMore
	dst = append(zmtp.AppendHeader(dst, more, len(keyApplied)), keyApplied...)
	dst = append(zmtp.AppendHeader(dst, more, len(a.mapID)), a.mapID[:]...)
	if a.Known {
		dst = binary.BigEndian.AppendUint64(zmtp.AppendHeader(dst, more, 8), a.Counter)
	} else {
		dst = zmtp.AppendHeader(dst, more, 0)
	}
	dst = binary.BigEndian.AppendUint64(zmtp.AppendHeader(dst, more, 8), uint64(a.forgotten))
	if a.Runs == nil {
		return appendSkips(zmtp.AppendHeader(dst, 0, len(a.skips)*skipSize), a.skips)
	}
	dst = appendSkips(zmtp.AppendHeader(dst, more, len(a.skips)*skipSize), a.skips)
	dst = zmtp.AppendHeader(dst, 0, len(a.Runs)*runSize)
	for _, r := range a.Runs {
		dst = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, r.Last), uint64(r.seq))
	}
	return dst
}

func appendSkips(dst []byte, skips []Skip) []byte {
	for _, s := range skips {
		dst = binary.BigEndian.AppendUint64(dst, s.first)
		dst = binary.BigEndian.AppendUint64(dst, s.Last)
		dst = append(dst, byte(s.reason))
	}
	return dst
}

// IsReply reports whether a message begins with the frames of APPLIED. A KVSYNC of a
// key with that name has the same first frame; its second frame is shorter.
func IsReply(m zmtp.WireMessage) bool {
	const header = 2 + len(keyApplied)
	return len(m) > header+2 && m[0] == kvmsg.FlagMore && int(m[1]) == len(keyApplied) && string(m[2:header]) == keyApplied &&
		m[header] == kvmsg.FlagMore && m[header+1] == MapIDSize
}

// Parse sets a to the reply in a message, in the memory that a has, and returns false if the
// message is malformed: then a is not to be used.
func (a *Reply) Parse(m zmtp.WireMessage) (ok bool) {
	n := m.Len()
	if n != 5 && n != 6 {
		return false
	}
	key, m := m.Next()
	id, m := m.Next()
	counter, m := m.Next()
	forgotten, m := m.Next()
	skips, m := m.Next()
	if string(key) != keyApplied || len(id) != MapIDSize || len(counter)&^8 != 0 || len(forgotten) != 8 {
		return false
	}
	a.mapID, a.forgotten = [MapIDSize]byte(id), int64(binary.BigEndian.Uint64(forgotten))
	if a.Known, a.Counter = len(counter) > 0, 0; a.Known {
		a.Counter = binary.BigEndian.Uint64(counter)
	}
	if a.skips, ok = parseSkips(a.skips[:0], skips); !ok || a.Counter > maxOrder {
		return false
	}
	if n == 5 {
		a.Runs = nil
		return true
	}
	if a.Runs == nil {
		a.Runs = make([]Run, 0, maxRuns)
	}
	runs, _ := m.Next()
	a.Runs, ok = parseRuns(a.Runs[:0], runs, a.Counter)
	return ok
}

// parseRuns appends runs, which must rise, up to the last number counter.
func parseRuns(runs []Run, b []byte, counter uint64) ([]Run, bool) {
	if len(b)%runSize != 0 || len(b)/runSize > maxRuns {
		return nil, false
	}
	var before Run
	for ; len(b) > 0; b = b[runSize:] {
		r := Run{binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint64(b[8:]))}
		if r.Last <= before.Last || r.Last > counter || r.seq <= before.seq {
			return nil, false
		}
		runs, before = append(runs, r), r
	}
	return runs, true
}

func parseSkips(skips []Skip, b []byte) ([]Skip, bool) {
	if len(b)%skipSize != 0 || len(b)/skipSize > maxSkips {
		return nil, false
	}
	for ; len(b) > 0; b = b[skipSize:] {
		skips = append(skips, Skip{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), kvmsg.Reason(b[16])})
	}
	return skips, true
}
