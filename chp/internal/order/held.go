package order

import (
	"context"
	"math"
	"slices"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/txn"
	"clustermap/internal/buf"
	"clustermap/internal/fifo"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// held has the batches that are ordered and not committed: they are in the log, and neither
// in the map nor published. The oldest is first.
//
// The caller of add bounds it: see Sequencer.Room. The slices are reused.
type held struct {
	batches fifo.Queue[heldBatch]
	bytes   int  // memory
	tight   bool // new updates wait until the map has these, which may fill it
	spare   []heldBatch

	// For requests: the newest update of each key in the batches, while there are requests.
	newest  map[uint64]ahead // nil if there are none
	without int              // batches since the last request

	// And the last updates of the requests in the batches, while clients send some again.
	made    map[requestOf]int64 // nil if none do
	unasked int                 // batches since the last one that was sent again
}

// requestOf is a request of a client.
type requestOf struct {
	client ledger.ID
	number uint64
}

// heldBatch is one batch of updates in the log. It retains the segments of its pieces.
type heldBatch struct {
	state.Head
	index  journal.Index
	pieces []store.Piece
	spans  []buf.Span
	bytes  int

	grouped bool // some of the updates belong to a transaction of several
	resend  bool // see state.Entry
}

// records calls f with the records of a batch that was added, and their hashes.
func (b *heldBatch) records(f func(r kvmsg.Record, hash uint64)) {
	spans := b.spans
	for _, p := range b.pieces {
		wire := p.Wire()
		for _, span := range spans[:p.Records] {
			size := span.End - span.Start
			f(kvmsg.Record(wire[:size:size]), span.Tag&^kvmsg.TagFlags)
			wire = wire[size:]
		}
		spans = spans[p.Records:]
	}
}

// empty reports whether no batch is held.
func (h *held) empty() bool { return h.batches.Len() == 0 }

// size returns the number of batches.
func (h *held) size() int { return h.batches.Len() }

// oldest returns the oldest batch.
func (h *held) oldest() *heldBatch { return h.batches.At(0) }

// add appends a batch. It copies the slices.
func (h *held) add(batch *heldBatch) {
	var b heldBatch
	if n := len(h.spare); n > 0 {
		b = h.spare[n-1]
		h.spare = h.spare[:n-1]
	}
	b.Head, b.index, b.grouped, b.resend, b.bytes = batch.Head, batch.index, batch.grouped, batch.resend, heldBytes+spanBytes*len(batch.spans)
	b.pieces, b.spans = append(b.pieces[:0], batch.pieces...), append(b.spans[:0], batch.spans...)
	for _, p := range b.pieces {
		p.Segment.Retain()
		b.bytes += p.Size()
	}
	h.bytes += b.bytes
	h.batches.Push(b)
	if h.made != nil {
		if h.unasked++; h.unasked > withoutRequests {
			h.made = nil
		} else {
			h.noteMade(&b)
		}
	}
	if h.newest != nil {
		if h.without++; h.without > withoutRequests {
			h.newest = nil
			return
		}
		h.note(&b)
	}
}

// note adds a batch to newest.
func (h *held) note(b *heldBatch) {
	seq := b.First
	b.records(func(r kvmsg.Record, hash uint64) {
		if before, ok := h.newest[hash]; ok && !before.record.HasKey(r.Key()) {
			h.tight = true // two keys with one hash: requests wait until the map has them
		}
		h.newest[hash] = ahead{r, seq}
		seq++
	})
}

// noteMade adds the requests of a batch to made.
func (h *held) noteMade(b *heldBatch) {
	b.requests(func(r requestOf, seq int64) { h.made[r] = seq })
}

// requests calls f with the requests in a batch and the sequences of their updates.
func (b *heldBatch) requests(f func(r requestOf, seq int64)) {
	if b.Counter > 0 {
		return
	}
	seq := b.First
	b.records(func(r kvmsg.Record, _ uint64) {
		if n, ok := txn.NumberOf(r); ok {
			f(requestOf{b.Client, n}, seq)
		}
		seq++
	})
}

// madeAt returns the sequence of the last update of a request, or 0 if no batch has it.
func (h *held) madeAt(r requestOf) int64 {
	h.unasked = 0
	if h.made == nil && !h.empty() {
		h.made = map[requestOf]int64{}
		for i := range h.batches.Len() {
			h.noteMade(h.batches.At(i))
		}
	}
	return h.made[r]
}

// index makes newest complete, for requests. It returns false if they must wait until no batch
// is held.
func (h *held) index() bool {
	h.without = 0
	if h.empty() {
		h.newest = nil
		return true
	}
	if h.newest == nil {
		h.newest = map[uint64]ahead{}
		for i := range h.batches.Len() {
			h.note(h.batches.At(i))
		}
	}
	return !h.tight
}

// drop releases the oldest batch.
func (h *held) drop() {
	b := h.batches.Pop()
	if h.newest != nil {
		seq := b.First
		b.records(func(_ kvmsg.Record, hash uint64) {
			if h.newest[hash].seq == seq {
				delete(h.newest, hash)
			}
			seq++
		})
	}
	if h.made != nil {
		b.requests(func(r requestOf, seq int64) {
			if h.made[r] == seq {
				delete(h.made, r)
			}
		})
		if h.empty() {
			h.made = nil
		}
	}
	for _, p := range b.pieces {
		p.Segment.Release()
	}
	h.bytes -= b.bytes
	if len(h.spare) < maxSpare {
		clear(b.pieces)
		h.spare = append(h.spare, b)
	}
}

// clear releases all batches.
func (h *held) clear() {
	for !h.empty() {
		h.drop()
	}
}

// filter removes the spans of expired keys that a held batch updates: those get another
// deadline, or none, when the batch is linked.
func (h *held) filter(spans []buf.Span, d *timer.Deadlines) []buf.Span {
	if h.empty() || len(spans) == 0 {
		return spans
	}
	updated := make(map[uint64]bool, len(spans))
	for _, s := range spans {
		updated[s.Tag&^kvmsg.TagFlags] = false
	}
	for i := range h.batches.Len() {
		for _, s := range h.batches.At(i).spans {
			if _, ok := updated[s.Tag&^kvmsg.TagFlags]; ok {
				updated[s.Tag&^kvmsg.TagFlags] = true
			}
		}
	}
	return slices.DeleteFunc(spans, func(s buf.Span) bool {
		hash := s.Tag &^ kvmsg.TagFlags
		if updated[hash] {
			d.Remove(hash, math.MaxInt64)
		}
		return updated[hash]
	})
}

// commit puts the held batches that are committed into the map and publishes them. A passive
// server commits nothing. mu must be held.
func (q *Sequencer) commit() {
	some := false
	for !q.passive && !q.held.empty() {
		b := q.held.oldest()
		if !q.journal.Committed(b.index, b.Last()) {
			break
		}
		q.publish(b)
		q.held.drop()
		some = true
	}
	if some {
		q.noteWaits()
		q.wakeWaiters()
	}
}

// linkHeld puts the held batches of a passive server into its map: the active server has
// them. mu must be held.
func (q *Sequencer) linkHeld() {
	for !q.held.empty() {
		b := q.held.oldest()
		q.link(b)
		q.show(b.pieces)
		q.held.drop()
	}
	q.noteWaits()
}

// Committed is called when the journal may have committed more.
func (q *Sequencer) Committed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.commit()
}

// wakeWaiters wakes the goroutines that wait for updates to be published or accepted. mu must
// be held.
func (q *Sequencer) wakeWaiters() {
	if q.progress != nil {
		close(q.progress)
		q.progress = nil
	}
}

// more returns a channel that is closed when more is published. mu must be held.
func (q *Sequencer) more() <-chan struct{} {
	if q.progress == nil {
		q.progress = make(chan struct{})
	}
	return q.progress
}

// noteWaits must be called when held becomes empty or no longer is, and when halted changes.
// mu must be held.
func (q *Sequencer) noteWaits() { q.waiting.Store(!q.held.empty() || q.halted != (halted{})) }

// full returns nil if updates can be accepted, and otherwise a channel that is closed
// when the caller should check again.
func (q *Sequencer) full() <-chan struct{} {
	if !q.waiting.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.halted == (halted{}) && !q.undecided() && (q.passive || q.held.bytes < MaxHeld && !(q.held.tight && !q.held.empty())) {
		return nil
	}
	return q.more()
}

// Room waits until another batch of updates can be accepted. If the journal has failed, it
// returns the error of that.
func (q *Sequencer) Room(ctx context.Context) error {
	for more := q.full(); more != nil; more = q.full() {
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		case <-q.journal.Failed():
			return q.journal.Room(ctx)
		}
	}
	return q.journal.Room(ctx)
}

// Held returns the bytes of the updates that are ordered and not committed, which MaxHeld
// bounds.
func (q *Sequencer) Held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held.bytes
}
