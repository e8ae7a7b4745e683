package chp

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/timer"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// sequencer gives every update its number. What happens to a batch of updates:
//
//	order    it gets its numbers
//	apply    it is copied to the log and entered into the index
//	commit   everything that is to keep it has it: the log on disk, the other
//	         server of a pair, or nothing
//	publish  it is handed to the publisher
//
// Whatever changes the map does so under the mutex, which is taken once a batch, so
// the publisher's order is the order of the numbers, and a cut taken under the mutex
// lies between two batches. If there is nothing to wait for, the four steps are one.
//
// Updates are applied before they are committed because the log has the bytes that
// disk, peer and subscribers get. Nobody outside is told of them before that:
// the batches are held back, a heartbeat carries the number of the last update that
// was published, and a snapshot is sent when its cut is.
//
// Nothing done under the mutex waits for a peer or a disk.
type sequencer struct {
	publisher publisher
	maxBytes  int64 // of the live records; 0: any number
	refused   *refusals
	unfit     []sockets.Span // scratch of fitting

	current atomic.Pointer[store.Map] // store, for readers

	mu     sync.Mutex
	store  *store.Map
	wheel  *timer.Wheel
	pieces []store.Piece // scratch
	dead   expiry        // scratch
	hugz   []byte        // the heartbeat's wire form, its sequence to be filled in; nil to send none

	disk   disk
	saving sync.Mutex // held while a checkpoint is written; before mu

	// Of a pair.
	passive  bool            // the server does not serve: it takes and publishes nothing
	halted   bool            // updates wait for the end of a handover
	acks     int             // servers that must have an update
	mapID    [mapIDSize]byte // the identity of the map
	epoch    uint64          // the present reign
	newest   reign           // of the last update
	source   uint64          // the run of the active server that this one follows or has followed last, 0 before
	reigns   []reign         // earlier ones with updates, the oldest first
	tail     tail            // for the other server
	follower *following      // the other server, nil if it does not follow
	early    early           // updates that came before the active server published them

	held     held          // applied and not yet published
	commits  commits       // what they wait for
	progress chan struct{} // closed when some were published; nil while nobody waits

	base      int64     // sequence before the first update: last, while the map is new
	deadlines deadlines // for snapshots; has its own lock

	// Written under mu, read by anyone.
	last      atomic.Int64 // the sequence of the last update
	published atomic.Int64 // the sequence of the last update that was published
	waiting   atomic.Bool  // updates wait to be committed
	updates   atomic.Uint64
	expired   atomic.Uint64

	armed chan struct{} // wakes the clock when the first TTL comes

	origins  *origins      // what each client has had applied; guarded by mu
	repeated atomic.Uint64 // updates left out because they had been taken before
}

// firstSequence is where a run that starts at t begins to count: ahead of any
// earlier run of this server or another, as long as none publishes more than
// 2^20 updates a millisecond. It stays within a signed 64-bit integer, which
// the guide's clients use, until the year 2248.
func firstSequence(t time.Time) int64 { return t.UnixMilli() << 20 }

func (q *sequencer) init(publisher publisher, maxBytes int64, refused *refusals) {
	q.publisher, q.maxBytes, q.refused = publisher, maxBytes, refused
	q.store = store.New(store.Options{})
	q.current.Store(q.store)
	q.origins = new(origins)
	q.wheel = timer.NewWheel(time.Now())
	q.armed = make(chan struct{}, 1)
	q.base = firstSequence(time.Now())
	q.last.Store(q.base)
	q.published.Store(q.base)
	q.hugz = zmtp.AppendMessage(nil, []byte("HUGZ"), make([]byte, 8), nil, nil, nil)
}

// take numbers, stores and publishes a batch of updates that collect has checked.
// It returns those that the map has no room for, in a slice that is valid until the
// next call, and how many it left out because it had taken them before. If ok is false
// it took nothing, and the caller has to call room and take again.
func (q *sequencer) take(b *sockets.Batch, from sender) (unfit []sockets.Span, repeated int, ok bool) {
	wire, spans := b.Wire(), b.Spans()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.halted {
		return nil, 0, false
	}
	if q.passive && from.numbered && q.miss(from.id, wire, spans) {
		b.Peer().Disconnect(errNotActive) // so that the client sends them again
	}
	if q.passive || !q.early.empty() {
		if spans = q.early.admit(b, q.passive); len(spans) == 0 {
			return nil, 0, true
		}
	}
	unfit, repeated = q.accept(wire, spans, from)
	return unfit, repeated, true
}

// accept is take for updates that are not to be kept for later. mu must be held.
func (q *sequencer) accept(wire []byte, spans []sockets.Span, from sender) (unfit []sockets.Span, repeated int) {
	if from.numbered {
		all := len(spans)
		spans = q.once(from.id, wire, spans)
		if repeated = all - len(spans); repeated > 0 {
			q.repeated.Add(uint64(repeated))
		}
	}
	if len(spans) == 0 {
		return nil, repeated
	}
	if int64(extent(spans)) > q.mapRoom() {
		spans = q.fitting(wire, spans)
		unfit = q.unfit
		if from.numbered {
			q.skip(from.id, wire, unfit)
		}
		if len(spans) == 0 {
			return unfit, repeated
		}
	}
	h := batchHead{id: from.id, at: clock()}
	if from.numbered {
		h.counter = uint64(kvmsg.Record(wire[spans[len(spans)-1].Start:]).Seq())
	}
	first := q.enter(h, wire, spans)
	q.updates.Add(uint64(len(spans)))
	q.schedule(wire, spans, first, h.at)
	return unfit, repeated
}

// enter numbers and applies updates, publishes them if they need not be waited for,
// and returns the sequence of the first one. h says whose they are. mu must be held.
func (q *sequencer) enter(h batchHead, wire []byte, spans []sockets.Span) (first int64) {
	first = q.last.Load() + 1
	q.pieces = q.store.Apply(wire, spans, first, q.pieces[:0])
	h.epoch, h.first, h.count = q.epoch, first, uint32(len(spans))
	last := h.last()
	q.last.Store(last)
	q.advance(q.epoch, last)
	var index uint64
	if q.disk.on() {
		index = q.disk.append(h, q.pieces)
	}
	q.tail.add(h, q.pieces)
	if q.commits.waits() || !q.held.empty() {
		q.held.add(last, index, q.pieces, spans)
		q.commit()
		return first
	}
	q.publish(q.pieces, spans)
	q.published.Store(last)
	return first
}

// publish hands pieces of the log to the publisher. They hold the messages of spans
// in their order.
func (q *sequencer) publish(pieces []store.Piece, spans []sockets.Span) {
	for _, p := range pieces {
		// The publisher's policy is to disconnect, so this does not wait; it
		// fails only once the publisher is closed.
		_ = q.publisher.SendSpans(context.Background(), p.Wire(), spans[:p.Records], p.Segment)
		spans = spans[p.Records:]
	}
}

// schedule enters the updates that have a TTL into the wheel, and takes out the
// keys that are deleted. A key that is set again without one stays until its
// time comes, and is then seen to have been superseded. Times to live count from at,
// on clock.
func (q *sequencer) schedule(wire []byte, spans []sockets.Span, first int64, at time.Duration) {
	var made time.Time // at
	for i, s := range spans {
		if s.Tag&kvmsg.TagDelete != 0 && q.wheel.Len() > 0 {
			q.wheel.Remove(s.Tag &^ kvmsg.TagFlags)
			q.deadlines.remove(s.Tag&^kvmsg.TagFlags, first+int64(i))
		}
		if s.Tag&kvmsg.TagFlags != kvmsg.TagProperties {
			continue
		}
		ttl := kvmsg.TTLOf(kvmsg.Record(wire[s.Start:s.End]).Props())
		if ttl == 0 {
			continue
		}
		if made.IsZero() {
			made = timeOf(at)
		}
		q.deadlines.set(s.Tag&^kvmsg.TagFlags, first+int64(i), at+ttl)
		if q.wheel.Len() == 0 {
			select {
			case q.armed <- struct{}{}:
			default:
			}
		}
		q.wheel.Add(s.Tag&^kvmsg.TagFlags, first+int64(i), made.Add(ttl))
	}
}

// heartbeat publishes HUGZ with the sequence of the last update that was published.
func (q *sequencer) heartbeat() {
	if q.hugz == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	binary.BigEndian.PutUint64(q.hugz[hugzSequence:], uint64(q.published.Load()))
	_ = q.publisher.SendWire(context.Background(), q.hugz, 1, nil) // as in publish
}

// hugzSequence is where the sequence stands in the heartbeat's wire form.
const hugzSequence = 2 + len("HUGZ") + 2

// expiry is the deletions of one portion of expired keys, in wire form.
type expiry struct {
	key   []byte
	wire  []byte
	spans []sockets.Span
}

// expire deletes the keys whose TTL has ended and publishes the deletions, as one
// batch like one that came from a client. It reports whether there is more to do:
// it works in portions, so that updates and heartbeats go on between them. size is
// how many bytes it published.
func (q *sequencer) expire(now time.Time) (more bool, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.passive || q.halted {
		return false, 0 // the active server does
	}
	d := &q.dead
	more = q.wheel.Advance(now, expirePortion, func(hash uint64, seq int64) {
		q.deadlines.remove(hash, seq)
		var ok bool
		if d.key, ok = q.store.KeyOf(hash, seq, d.key[:0]); !ok {
			return // set anew or deleted since
		}
		start := len(d.wire)
		d.wire = kvmsg.AppendRecord(d.wire, d.key, 0, nil, expiredProperties, nil)
		d.spans = append(d.spans, sockets.Span{Start: uint32(start), End: uint32(len(d.wire)), Tag: hash | kvmsg.TagDelete | kvmsg.TagProperties})
	})
	if len(d.spans) > 0 {
		q.enter(batchHead{at: clock()}, d.wire, d.spans)
		q.expired.Add(uint64(len(d.spans)))
		size = len(d.wire)
		d.wire, d.spans = d.wire[:0], d.spans[:0]
	}
	if !more && cap(d.wire) > keepExpiry {
		q.dead = expiry{}
	}
	return more, size
}

const (
	// expirePortion is how many deadlines are looked at under one hold of the mutex.
	expirePortion = 2048
	// keepExpiry is the largest scratch of expire that is kept.
	keepExpiry = 64 << 10
)

// tidy gives memory back that the store no longer needs, a portion of the work at
// a time, and reports whether there is more to do. Updates pay for compaction as
// they come; this is for when none come.
func (q *sequencer) tidy() (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.store.Tidy(tidyPortion)
}

// tidyPortion is how many bytes of the log compaction looks at under one hold of
// the mutex.
const tidyPortion = 256 << 10

// timers returns how many keys wait for their TTL to end.
func (q *sequencer) timers() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.wheel.Len()
}

// cut fixes a consistent state and its sequence.
func (q *sequencer) cut() *store.Cut {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.store.Cut()
	c.Sequence = q.last.Load()
	return c
}

// cutKey is cut for a single key; see store.Map.CutKey.
func (q *sequencer) cutKey(key []byte) (*store.Cut, []store.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, list := q.store.CutKey(key)
	c.Sequence = q.last.Load()
	return c, list
}

// logSize returns the bytes of the log.
func (q *sequencer) logSize() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.store.LogBytes()
}
