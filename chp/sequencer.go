package chp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/watch"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/internal/store"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
	"clustermap/zmtp"
)

// sequencer numbers all updates. A batch of updates goes through these steps:
//
//	order    the updates get their sequences
//	append   they are copied to the log of the store
//	commit   everything that must store them has them: the log on disk, the other
//	         server of a pair, or nothing
//	link     the map has them: the index points to them
//	publish  they are passed to the publisher and to the watches
//
// All of it happens under the mutex, which is locked once per batch. So the publisher's
// order is the order of the sequences, and a cut made under the mutex is between two
// batches. If nothing has to be waited for, the steps are one.
//
// Updates are appended before they are committed because the log has the bytes that the
// disk, the other server and the subscribers get. Until they are committed they are held,
// and nobody sees them: what is in the map is published, and what is published is in the map.
//
// Nothing under the mutex waits for a peer or a disk.
type sequencer struct {
	publisher wire.Publisher
	maxBytes  int64 // of the live records; 0 means no limit
	refused   *refusals
	counts    counts

	current atomic.Pointer[state.State] // state, for readers

	mu    sync.Mutex
	state *state.State // of all that is committed
	order order
	hugz  []byte // the wire form of the heartbeat, without its sequence; nil if none is sent

	journal journal.Journal
	linked  journal.Index // of the last entry in the map

	// Of a pair.
	passive bool       // the server does not accept or publish updates
	halted  halts      // updates wait
	early   wire.Early // updates that came before the active server published them

	held     held          // ordered and not yet committed
	progress chan struct{} // closed when some were published; nil if no goroutine waits
	ends     ends          // of the terms of this server
	closed   bool          // updates of this process are refused
	watches  watch.List    // of this process

	base     int64 // sequence before the first update: that of the last one, while the map is new
	restored int64 // sequence of the last update from the log or Preload; 0 once the other server has said how old they are

	waiting atomic.Bool // new updates may have to wait: some are held, or they are halted. Written under mu

	alarm   alarm
	scratch scratch
}

// counts counts updates. They are written under the sequencer's mutex, and read by any
// goroutine.
type counts struct {
	updates  atomic.Uint64
	expired  atomic.Uint64
	repeated atomic.Uint64 // skipped because they had been accepted before
}

// ends is how terms of this server as the active one have ended.
type ends struct {
	count uint64
	kept  int64 // the last published update of the term that ended last
	lost  bool  // updates were not published when a term ended, and no Flush has reported it
}

// alarm wakes the clock when the first TTL comes.
type alarm struct {
	armed chan struct{}
	at    time.Duration // see armedSince
}

// scratch is memory that is used again.
type scratch struct {
	unfit []buf.Span // of fitting
	own   []buf.Span // of acceptLocal
	dead  expiry     // of expire
}

// firstSequence returns the first sequence of a run that starts at t. It is ahead of
// every earlier run, of this server or another, if none publishes more than 2^20
// updates per millisecond. After the year 2109, or if the clock is so far ahead, it no
// longer grows.
func firstSequence(t time.Time) int64 {
	return min(max(t.UnixMilli(), 0), state.MaxStart>>20) << 20
}

func (q *sequencer) init(publisher wire.Publisher, maxBytes int64, refused *refusals) {
	q.publisher, q.maxBytes, q.refused, q.journal = publisher, maxBytes, refused, journal.Memory{}
	q.alarm.armed = make(chan struct{}, 1)
	q.base = firstSequence(time.Now())
	q.setState(state.New(q.base))
	rand.Read(q.state.ID[:]) // never fails
	q.hugz = zmtp.AppendMessage(nil, []byte("HUGZ"), make([]byte, 8), nil, nil, nil)
}

// setState replaces the map, and orders what follows it. mu must be held.
func (q *sequencer) setState(s *state.State) {
	q.held.clear() // of the map before
	q.state = s
	q.current.Store(s)
	q.orderAfter()
}

// orderAfter orders what follows the state. mu must be held.
func (q *sequencer) orderAfter() {
	q.order.last = q.state.Last()
	q.order.reigns.Set(q.state.Terms.History())
}

// order is where the sequencer is: it is ahead of the state by the held updates.
type order struct {
	last   int64        // sequence of the last update
	reigns state.Reigns // and the present one
}

// follow records that a batch is ordered.
func (o *order) follow(h *state.Head) {
	o.last = h.Last()
	o.reigns.Advance(h.Reign, h.Last())
}

// accept orders and, if nothing has to be waited for, publishes a batch that checkUpdates has checked. It
// returns the updates that the map has no room for, in a slice that is valid until the
// next call, and the number of updates that it skipped because they had been accepted
// before. If ok is false, it did nothing: the caller must call room, and accept again.
func (q *sequencer) accept(b *hooks.Batch, from sender) (unfit []buf.Span, repeated int, ok bool) {
	wire, spans := b.Wire(), b.Spans()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.halted != 0 {
		return nil, 0, false
	}
	if q.passive && from.numbered && q.state.Clients.Miss(from.id, wire, spans) {
		b.Peer().Disconnect(errNotActive) // so that the client sends them again
	}
	if q.passive || !q.early.Empty() {
		if spans = q.early.Filter(b, q.passive, timer.Now()); len(spans) == 0 {
			return nil, 0, true
		}
	}
	if !q.fits(spans) {
		return nil, 0, false
	}
	unfit, repeated = q.acceptNow(wire, spans, from)
	return unfit, repeated, true
}

// acceptNow is accept for an active server. mu must be held.
func (q *sequencer) acceptNow(wire []byte, spans []buf.Span, from sender) (unfit []buf.Span, repeated int) {
	if from.numbered {
		all := len(spans)
		spans = q.state.Clients.Once(from.id, wire, spans)
		if repeated = all - len(spans); repeated > 0 {
			q.counts.repeated.Add(uint64(repeated))
		}
	}
	if len(spans) == 0 {
		return nil, repeated
	}
	if int64(buf.Extent(spans)) > q.mapRoom() {
		spans = q.fitting(wire, spans)
		unfit = q.scratch.unfit
		if from.numbered {
			q.state.Clients.Refuse(from.id, wire, unfit, ReasonMapFull)
		}
		if len(spans) == 0 {
			return unfit, repeated
		}
	}
	q.order.reigns.Count()
	e := state.Entry{Head: state.Head{Client: from.id, At: timer.Now()}, Wire: wire, Spans: spans}
	if from.numbered {
		e.Counter = uint64(kvmsg.Record(wire[spans[len(spans)-1].Start:]).Seq())
	}
	q.apply(&e)
	q.counts.updates.Add(uint64(len(spans)))
	return unfit, repeated
}

// apply orders updates, and publishes them unless they must be committed first. mu must be
// held.
func (q *sequencer) apply(e *state.Entry) {
	e.Reign, e.First, e.Count = q.order.reigns.Present, q.order.last+1, uint32(len(e.Spans))
	q.order.follow(&e.Head)
	if q.journal.AtOnce() && q.held.empty() {
		out := q.state.Apply(e)
		q.linked = q.journal.Append(e.Head, out.Pieces, 0)
		q.arm(out, e.At)
		q.send(out.Pieces, e.Spans)
		return
	}
	pieces := q.state.Append(e)
	b := heldBatch{Head: e.Head, index: q.journal.Append(e.Head, pieces, q.held.size()), pieces: pieces, spans: e.Spans}
	if q.held.empty() && q.journal.Committed(b.index, b.Last()) {
		q.publish(&b)
		return
	}
	q.held.add(&b)
	q.noteWaits()
}

// link puts a batch that was appended into the map. mu must be held.
func (q *sequencer) link(b *heldBatch) {
	q.arm(q.state.Link(&b.Head, b.pieces, b.spans), timer.Now())
	q.linked = b.index
}

// publish puts a batch into the map of an active server, and publishes it. mu must be held.
func (q *sequencer) publish(b *heldBatch) {
	q.link(b)
	q.send(b.pieces, b.spans)
}

// arm wakes the clock if an entry has set the first deadline, at a time.
func (q *sequencer) arm(out state.Outcome, at time.Duration) {
	if out.Timed {
		q.alarm.at = at
		wake.Signal(q.alarm.armed)
	}
}

// send passes pieces of the log, which are in the map, to the publisher and to the watches
// of this process. spans are their messages, in order. mu must be held.
func (q *sequencer) send(pieces []store.Piece, spans []buf.Span) {
	q.watches.Push(pieces)
	for _, p := range pieces {
		// The publisher's policy is to disconnect, so this does not wait; it
		// fails only once the publisher is closed.
		_ = q.publisher.SendSpans(context.Background(), p.Wire(), spans[:p.Records], p.Segment)
		spans = spans[p.Records:]
	}
}

// heartbeat publishes HUGZ with the sequence of the last published update.
func (q *sequencer) heartbeat() {
	if q.hugz == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	binary.BigEndian.PutUint64(q.hugz[hugzSequence:], uint64(q.state.Last()))
	_ = q.publisher.SendWire(context.Background(), q.hugz, 1, nil) // as in send
}

// hugzSequence is the offset of the sequence in the wire form of HUGZ.
const hugzSequence = 2 + len("HUGZ") + 2

// expiry is the deletions of one portion of expired keys, in wire form.
type expiry struct {
	wire  []byte
	spans []buf.Span
}

// canExpire reports whether expire would have to wait for nothing. An active server
// expires keys also if it holds updates because it may be cut off: clients that only
// listen would wait for ever, and what a server does by itself does not decide whose map
// wins.
func (q *sequencer) canExpire() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.passive || q.halted&haltHandover == 0 && q.held.bytes < maxHeld && q.journal.Room(ended) == nil
}

// expire deletes the keys whose TTL has ended and publishes the deletions in one batch.
// Keys that the grace spares get its end as their deadline.
// It works in portions, so that updates and heartbeats continue in between, and reports
// whether there is more to do. size is the number of published bytes.
func (q *sequencer) expire(now time.Time) (more bool, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.passive || q.halted&haltHandover != 0 {
		return false, 0 // the active server expires keys
	}
	d := &q.scratch.dead
	d.wire, d.spans, more = q.state.Expired(timer.At(now), expirePortion, d.wire[:0], d.spans[:0])
	d.spans = q.held.filter(d.spans, &q.state.Deadlines)
	if len(d.spans) > 0 {
		if mutate.CountExpiry {
			q.order.reigns.Count()
		}
		q.apply(&state.Entry{Head: state.Head{At: timer.Now()}, Wire: d.wire, Spans: d.spans})
		q.counts.expired.Add(uint64(len(d.spans)))
		size = len(d.wire)
	}
	if !more && cap(d.wire) > keepExpiry {
		q.scratch.dead = expiry{}
	}
	return more, size
}

const (
	// expirePortion is the number of deadlines that are checked under one hold of the
	// mutex.
	expirePortion = 2048
	// keepExpiry is the largest scratch of expire that is kept.
	keepExpiry = 64 << 10
)

// tidy frees memory that the store no longer needs, in portions, and reports whether
// there is more to do. Updates do part of the compaction; tidy does it when there are
// no updates.
func (q *sequencer) tidy() (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Store.Tidy(tidyPortion)
}

// tidyPortion is the number of bytes of the log that compaction checks under one hold
// of the mutex.
const tidyPortion = 256 << 10

// timers returns the number of keys with a TTL in the timing wheel.
func (q *sequencer) timers() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Deadlines.Len()
}

// armedSince returns when the times to live began that were the first in the timing wheel
// while it was empty.
func (q *sequencer) armedSince() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.alarm.at
}

// cut returns a cut of the map with its sequence.
func (q *sequencer) cut() state.Cut {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Cut()
}
