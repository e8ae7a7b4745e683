package chp

import (
	"clustermap/chp/internal/ledger"
	"iter"
	"sync/atomic"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// mapState is the replicated map: all that two servers have alike which have applied the
// same entries. It changes only by apply, by restore while it is being received, and by
// beginTerm.
//
// Methods and fields are for one goroutine at a time, which the owner guarantees with its
// mutex, except for what readers of the store and the deadlines may do, and last.
type mapState struct {
	id        [ledger.MapIDSize]byte // the identity of the map: servers with the same one have a common past
	store     *store.Map
	deadlines timer.Deadlines
	clients   ledger.Clients // the progress of each client
	terms     reigns         // and the present one

	sequence atomic.Int64  // of the last update
	pieces   []store.Piece // scratch
}

// newMapState returns an empty map whose first update gets the sequence after one.
func newMapState(sequence int64) *mapState {
	s := &mapState{store: store.New(store.Options{})}
	s.sequence.Store(sequence)
	return s
}

// entry is a batch of updates, which is applied as a whole.
type entry struct {
	batchHead
	wire  []byte     // with the updates in the form of records, at spans
	spans []buf.Span // with the keys' hashes as tags

	// stamped says that the updates have their sequences, as those of another server or of
	// a log. Otherwise apply gives them the sequences from first on.
	stamped bool
}

// outcome is what an entry has changed.
type outcome struct {
	pieces []store.Piece // the updates in the log, until the next call of apply
	timed  bool          // no key had a deadline before, and now one has
}

// last returns the sequence of the last update. Any goroutine may call it.
func (s *mapState) last() int64 { return s.sequence.Load() }

// apply applies an entry. It is deterministic: the state depends only on the entries and
// their order. e and its bytes are the caller's again when it returns.
func (s *mapState) apply(e *entry) outcome {
	stamp := e.first
	if e.stamped {
		stamp = 0
	}
	if e.counter > 0 {
		s.clients.Note(e.id, e.counter, len(e.spans), e.first-1)
	}
	s.pieces = s.store.Apply(e.wire, e.spans, stamp, s.pieces[:0])
	timed := s.deadlines.Apply(e.wire, e.spans, stamp, e.at)
	last := e.last()
	s.sequence.Store(last)
	s.terms.advance(e.reign, last)
	return outcome{s.pieces, timed}
}

// skipTo makes the next update get at least the sequence after one.
func (s *mapState) skipTo(sequence int64) { s.sequence.Store(max(s.last(), sequence)) }

// expiredProperties marks the deletion of an expired key, for all clients. Its UUID is
// empty, because no client sent it. Other peers ignore unknown properties.
// A client's deletion loses the property (kvmsg.FromClient).
var expiredProperties = []byte(kvmsg.PropertyCause + "=expired\n")

// expired appends the deletions of keys whose time to live ends up to now to wire and
// spans, which an entry then applies: until it does, the keys are there, without a
// deadline. It stops after some steps (timer.Deadlines.Expire), and then reports that there
// is more.
func (s *mapState) expired(now time.Duration, steps int, wire []byte, spans []buf.Span) (_ []byte, _ []buf.Span, more bool) {
	var key []byte
	more = s.deadlines.Expire(now, steps, func(hash uint64, seq int64) {
		var ok bool
		if key, ok = s.store.KeyOf(hash, seq, key[:0]); !ok {
			return // set again or deleted since
		}
		start := len(wire)
		wire = kvmsg.AppendRecord(wire, key, 0, nil, expiredProperties, nil)
		spans = append(spans, buf.Span{Start: uint32(start), End: uint32(len(wire)), Tag: hash | kvmsg.TagDelete | kvmsg.TagProperties})
	})
	return wire, spans, more
}

// mapCut is the keys and values at one moment, with the sequence of the last update.
// Reading it needs no lock. Its owner must release it.
type mapCut struct {
	*store.Cut
	deadlines *timer.Deadlines // as they are now
}

// cut returns a cut of the keys and values.
func (s *mapState) cut() mapCut {
	c := s.store.Cut()
	c.Sequence = s.last()
	return mapCut{c, &s.deadlines}
}

// mapImage is the whole state at one moment. Its owner must release it.
type mapImage struct {
	mapCut
	id      [ledger.MapIDSize]byte
	terms   []reign // oldest first
	clients [][]byte
}

// image returns the whole state. It copies the progress of all clients, up to about 10 MB.
func (s *mapState) image() *mapImage {
	return &mapImage{s.cut(), s.id, s.terms.history(), s.clients.Portions()}
}

// A state is stored and sent in sections, in this order: one with the identity of the map,
// one with the terms, the clients in portions, and the records in portions. Each has a
// kind and a body:
//
//	map       the identity, 16 bytes
//	terms     see appendReigns
//	clients   see origins.portions
//	records   updates in wire form, with the remaining time to live; of each key at most one
//
// A log on disk has each in an entry of its own, and the servers of a pair in messages;
// writeTo has them one after the other.
type section struct {
	kind  sectionKind
	count uint32 // of the records
	body  []byte // valid until the next one
}

// sectionKind is the kind of a section. The numbers are those of entries in the log.
type sectionKind uint32

const (
	sectionRecords sectionKind = 0
	sectionClients sectionKind = 2
	sectionMap     sectionKind = 3
	sectionTerms   sectionKind = 4
)

// sections returns the state in sections; those of records have about size bytes. A cut of
// a map alone, without an identity, terms or clients, has no sections of them.
func (c *mapImage) sections(size int) iter.Seq[section] {
	return func(yield func(section) bool) {
		if c.id != [ledger.MapIDSize]byte{} && !yield(section{kind: sectionMap, body: c.id[:]}) {
			return
		}
		if len(c.terms) > 0 && !yield(section{kind: sectionTerms, body: appendReigns(nil, c.terms)}) {
			return
		}
		for _, portion := range c.clients {
			if !yield(section{kind: sectionClients, body: portion}) {
				return
			}
		}
		p := section{kind: sectionRecords, body: make([]byte, 0, size+size/4)}
		goOn := true
		flush := func() {
			if p.count > 0 {
				goOn = yield(p)
			}
			p.count, p.body = 0, p.body[:0]
		}
		c.Records(func(r kvmsg.Record) bool {
			if len(p.body)+len(r)+kvmsg.AgedGrowth > size {
				flush()
			}
			if goOn {
				p.body = kvmsg.AppendAged(p.body, r, c.deadlines.Remaining(r))
				p.count++
			}
			return goOn
		})
		if goOn {
			flush()
		}
	}
}
