package state

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/history"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/txn"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// State is the replicated map: all that two servers have alike which have applied the
// same entries. It changes only by Apply, or Append and Link, and by Restore while it is
// being received. SkipTo and Expired change what the next entries will be.
//
// Methods and fields are for one goroutine at a time, which the owner guarantees with its
// mutex, except for what readers of the store and the deadlines may do, and Last.
type State struct {
	ID        [ledger.MapIDSize]byte // the identity of the map: servers with the same one have a common past
	Store     store.Map
	Deadlines timer.Deadlines
	Clients   ledger.Clients // the progress of each client
	Terms     Reigns         // and the present one

	// History keeps the last versions of each key; nil keeps none. It is safe for concurrent
	// use, and set before the first entry.
	History *history.Keeper

	// Leases are those of the map; nil keeps none, as at a client. It is set before the first entry.
	Leases *Leases

	sequence atomic.Int64             // of the last update
	skipped  struct{ from, to int64 } // no update has a sequence above from and up to the other one
	pieces   []store.Piece            // scratch
}

// New returns an empty map whose first update gets the sequence after one.
func New(sequence int64) *State {
	s := new(State)
	s.Store.SetUp(store.Options{})
	s.sequence.Store(sequence)
	return s
}

// Entry is a batch of updates, which is applied as a whole.
type Entry struct {
	Head
	Wire  []byte     // with the updates in the form of records, at spans
	Spans []buf.Span // with the keys' hashes as tags

	// Stamped says that the updates have their sequences, as those of another server or of
	// a log. Otherwise Apply gives them the sequences from first on.
	Stamped bool

	// Heard, if not 0, is when this server heard of an entry that another one has made, whose clock may be wrong: times to
	// live count from then.
	Heard time.Duration

	Grouped bool // some of the updates belong to a transaction of several
	Resend  bool // nobody else sends the updates again if they are lost: no client, and not the server that expires keys
}

// Since returns when the times to live of an entry begin.
func (e *Entry) Since() time.Duration { return cmp.Or(e.Heard, e.At) }

// Outcome is what an entry has changed.
type Outcome struct {
	Pieces []store.Piece // the updates in the log, until the next call of apply
	Timed  bool          // no key had a deadline before, and now one has; or a lease is due
}

// Last returns the sequence of the last update. Any goroutine may call it.
func (s *State) Last() int64 { return s.sequence.Load() }

// Apply applies an entry. It is deterministic: the state depends only on the entries and
// their order. e and its bytes are the caller's again when it returns.
func (s *State) Apply(e *Entry) Outcome {
	stamp := e.First
	if e.Stamped {
		stamp = 0
	}
	s.note(&e.Head)
	s.make(&e.Head, e.First, e.Wire, e.Spans)
	s.pieces = s.Store.Apply(e.Wire, e.Spans, stamp, s.pieces[:0])
	timed := s.Deadlines.Apply(e.Wire, e.Spans, stamp, e.Since())
	timed = s.Leases.apply(e.Wire, e.Spans, stamp) || timed
	s.remember(s.pieces, e.Spans, e.At)
	s.advance(&e.Head)
	return Outcome{s.pieces, timed}
}

// Append is the first half of Apply: the updates are in the log, with their sequences, and
// the state is as before. The pieces are valid until the next call of Apply or Append, or
// while their segments are retained.
func (s *State) Append(e *Entry) []store.Piece {
	stamp := e.First
	if e.Stamped {
		stamp = 0
	}
	s.pieces = s.Store.Append(e.Wire, e.Spans, stamp, s.pieces[:0])
	return s.pieces
}

// Link is the second half of Apply: the updates of an entry that Append has returned as
// pieces are in the state. Entries must be linked in the order in which they were appended.
// spans has the records, with their tags; their positions do not matter.
func (s *State) Link(h *Head, pieces []store.Piece, spans []buf.Span) Outcome {
	s.note(h)
	s.Store.Link(pieces, spans)
	s.remember(pieces, spans, h.At)
	timed, first := false, h.First
	for _, p := range pieces {
		part := spans[:p.Records]
		if h.requests() {
			s.make(h, first, p.Wire(), placed(part))
			first += int64(p.Records)
		}
		spans = spans[p.Records:]
		if timedIn(part) {
			at := placed(part)
			timed = s.Deadlines.Apply(p.Wire(), at, 0, h.At) || timed
			timed = s.Leases.apply(p.Wire(), at, 0) || timed
		}
	}
	s.advance(h)
	return Outcome{pieces, timed}
}

// note records the progress of an entry's client.
func (s *State) note(h *Head) {
	if h.Counter > 0 {
		s.Clients.Note(h.Client, h.Counter, int(h.Count), h.First-1)
	}
}

// remember adds updates that are in the map to the history.
func (s *State) remember(pieces []store.Piece, spans []buf.Span, at time.Duration) {
	if s.History == nil {
		return
	}
	made := timer.TimeOf(at)
	for _, p := range pieces {
		s.History.Add(p.Wire(), spans[:p.Records], made)
		spans = spans[p.Records:]
	}
}

// make records the requests of an entry's client, whose updates follow each other from a sequence
// on.
func (s *State) make(h *Head, first int64, wire []byte, spans []buf.Span) {
	if !h.requests() {
		return
	}
	for i, span := range spans {
		r := kvmsg.Record(wire[span.Start:span.End])
		if n, ok := txn.NumberOf(r); ok && kvmsg.MoreOf(r, span.Tag) == 0 {
			s.Clients.Make(h.Client, n, first+int64(i))
		}
	}
}

// advance makes the last update of an entry that of the map.
func (s *State) advance(h *Head) {
	s.sequence.Store(h.Last())
	s.Terms.Advance(h.Reign, h.Last())
}

// timedIn reports whether some updates delete keys or have properties: most batches have
// none, and no effect on deadlines.
func timedIn(spans []buf.Span) bool {
	var flags uint64
	for i := range spans {
		flags |= spans[i].Tag
	}
	return flags&kvmsg.TagFlags != 0
}

// placed returns the spans of records that follow each other, from 0 on.
func placed(spans []buf.Span) []buf.Span {
	all := make([]buf.Span, len(spans))
	at := uint32(0)
	for i, span := range spans {
		end := at + span.End - span.Start
		all[i] = buf.Span{Start: at, End: end, Tag: span.Tag}
		at = end
	}
	return all
}

// Copy applies updates that another server has made, of all its keys or of some, and returns them
// as Apply does. The last update then has a sequence.
func (s *State) Copy(wire []byte, spans []buf.Span, sequence int64) []store.Piece {
	s.RestoreRecords(wire, spans, timer.Now())
	s.sequence.Store(sequence)
	return s.pieces
}

// SkipTo makes the next update get at least the sequence after one.
func (s *State) SkipTo(sequence int64) {
	s.sequence.Store(max(s.Last(), sequence))
	s.Skipped(s.Terms.Newest.Last, s.Last())
}

// Skipped records that no update has a sequence above one and up to another one.
func (s *State) Skipped(from, to int64) { s.skipped.from, s.skipped.to = from, to }

// Place returns a sequence from which a client that has the map can go on, at this server, the next
// run of it and the other one of a pair: that of the last update, while Last is above it because
// sequences were skipped since. Only this run of this server knows those.
func (s *State) Place() int64 {
	if last := s.Last(); last != s.skipped.to || s.skipped.from == 0 {
		return last
	}
	return s.skipped.from
}

// Unused returns a sequence for SkipTo: what follows it was used for no other update of the map,
// by whichever server. last is the last update that is known, and clock comes from the clock, as
// all sequences of servers that have begun: it is ahead of those that are not known, unless a
// clock is wrong. Then a random distance is.
func Unused(last, clock int64) int64 {
	if clock > last || last >= MaxStart {
		return max(last, clock)
	}
	return last + skipLeast + rand.Int64N(skipRandom)
}

// expiredProperties marks the deletion of an expired key, for all clients. Its UUID is
// empty, because no client sent it. Other peers ignore unknown properties.
// A client's deletion loses the property (kvmsg.FromClient).
var expiredProperties = []byte(kvmsg.PropertyCause + "=expired\n")

// Expired appends the deletions of keys whose time to live ends up to now to wire and
// spans, which an entry then applies: until it does, the keys are there, without a
// deadline. It stops after some steps (timer.Deadlines.Expire), and then reports that there
// is more. Leases whose time ends are then due (Leases.NextDue).
func (s *State) Expired(now time.Duration, steps int, wire []byte, spans []buf.Span) (_ []byte, _ []buf.Span, more bool) {
	var key []byte
	spared, grace := s.Deadlines.Spared()
	more = s.Deadlines.Expire(now, steps, func(hash uint64, seq int64) (bool, time.Duration) {
		var ok bool
		if key, ok = s.Store.KeyOf(hash, seq, key[:0]); !ok {
			return false, 0 // set again or deleted since
		}
		if lease, ok := kvmsg.LeaseOfKey(key); ok && s.Leases != nil {
			return false, s.overdue(lease, key, seq, spared, grace, now)
		}
		wire, spans = AppendExpired(wire, spans, hash, key, 0)
		return true, 0
	})
	return wire, spans, more
}

// AppendExpired appends the deletion of a key with a hash, of a transaction of which more follow.
func AppendExpired(wire []byte, spans []buf.Span, hash uint64, key []byte, more int) ([]byte, []buf.Span) {
	var space [64]byte
	start := len(wire)
	wire = kvmsg.AppendRecord(wire, key, 0, nil, txn.AppendMore(append(space[:0], expiredProperties...), more), nil)
	return wire, append(spans, buf.Span{Start: uint32(start), End: uint32(len(wire)), Tag: hash | kvmsg.TagDelete | kvmsg.TagProperties})
}

// Cut is the keys and values at one moment, with the sequence of the last update.
// Reading it needs no lock. Its owner must release it.
type Cut struct {
	*store.Cut
	ID        [ledger.MapIDSize]byte
	Last      int64            // of the last update; Sequence is above it if sequences were skipped since
	Deadlines *timer.Deadlines // as they are now
}

// Cut returns a cut of the keys and values.
func (s *State) Cut() Cut {
	c := s.Store.Cut()
	c.Sequence = s.Last()
	return Cut{c, s.ID, s.Terms.Newest.Last, &s.Deadlines}
}

// Image is the whole state at one moment. Its owner must release it.
type Image struct {
	Cut
	Terms   []Reign // oldest first
	clients [][]byte
	history *history.Keeper
	made    [][]byte // their requests
}

// Image returns the whole state. It copies the progress of all clients, up to about 10 MB.
func (s *State) Image() *Image {
	return &Image{s.Cut(), s.Terms.History(), s.Clients.Portions(), s.History, s.Clients.MadePortions()}
}

// A state is stored and sent in sections, in this order: one with the identity of the map,
// one with the terms, the clients, their requests and the history in portions, and the records
// in portions. Each has a
// kind and a body:
//
//	map       the identity, 16 bytes
//	terms     see AppendReigns
//	clients   see ledger.Clients
//	requests  see ledger.Clients
//	history   see history.Keeper.Portions; only with versions
//	records   updates in wire form, with the remaining time to live; of each key at most one
//
// A log on disk has each in an entry of its own, and the servers of a pair in messages;
// WriteTo has them one after the other.
type Section struct {
	Kind  Kind
	Count uint32 // of the records
	Body  []byte // valid until the next one
}

// Kind is the kind of a section. The numbers are those of entries in the log.
type Kind uint32

const (
	KindRecords Kind = 0
	KindClients Kind = 2
	KindMap     Kind = 3
	KindTerms   Kind = 4
	KindHistory Kind = 6

	// KindRequests is there only if clients have made requests, so that an earlier version can
	// read the others.
	KindRequests Kind = 5
)

// Sections returns the state in sections; those of records have about size bytes. A cut of
// a map alone, without an identity, terms or clients, has no sections of them.
func (c *Image) Sections(size int) iter.Seq[Section] {
	return func(yield func(Section) bool) {
		if c.ID != [ledger.MapIDSize]byte{} && !yield(Section{Kind: KindMap, Body: c.ID[:]}) {
			return
		}
		if len(c.Terms) > 0 && !yield(Section{Kind: KindTerms, Body: AppendReigns(nil, c.Terms)}) {
			return
		}
		for _, portion := range c.clients {
			if !yield(Section{Kind: KindClients, Body: portion}) {
				return
			}
		}
		for _, portion := range c.made {
			if !yield(Section{Kind: KindRequests, Body: portion}) {
				return
			}
		}
		for portion := range c.history.Portions(c.Sequence, size) {
			if !yield(Section{Kind: KindHistory, Body: portion}) {
				return
			}
		}
		p := Section{Kind: KindRecords, Body: make([]byte, 0, size+size/4)}
		goOn := true
		flush := func() {
			if p.Count > 0 {
				goOn = yield(p)
			}
			p.Count, p.Body = 0, p.Body[:0]
		}
		c.Records(func(r kvmsg.Record) bool {
			if len(p.Body)+len(r)+kvmsg.AgedGrowth > size {
				flush()
			}
			if goOn {
				p.Body = kvmsg.AppendAged(p.Body, r, c.Deadlines.Remaining(r))
				p.Count++
			}
			return goOn
		})
		if goOn {
			flush()
		}
	}
}
