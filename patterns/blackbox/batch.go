package blackbox

import (
	"sync/atomic"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// Batch is a run of messages for one worker, in the order in which they were
// received: views into the bytes that were read from one publisher.
//
// It belongs to the worker from the call of Options.Handle until that returns, or,
// after Keep, until Release. It is then used again for other messages, so no
// view of it may be used any more. A Batch is not safe for concurrent use; a kept
// one may be passed on to another goroutine.
type Batch struct {
	wire   []byte
	spans  []sockets.Span
	parcel *parcel
	worker *worker
	held   atomic.Bool // it is somebody's
}

// Len returns the number of messages, at least 1.
func (b *Batch) Len() int { return len(b.spans) }

// Message returns message i as a view. Its first frame is the topic.
func (b *Batch) Message(i int) zmtp.Message {
	s := b.spans[i]
	return zmtp.Message(b.wire[s.Start:s.End:s.End])
}

// Shard returns the index in Options.Shards of the shard that received it.
func (b *Batch) Shard() int { return b.worker.shard.index }

// Worker returns the number of its worker: from 0 to less than Box.Workers. Calls
// of Handle with the same number follow each other, so a worker can keep what
// it knows in a slice by that number without a lock.
func (b *Batch) Worker() int { return b.worker.number }

// Keep makes the batch the caller's beyond the return of Handle, until Release. It
// may be called only in Handle, by its goroutine. A kept batch counts in the
// worker's queue (Options.QueueBatches).
func (b *Batch) Keep() { b.worker.kept = true }

// Release gives a kept batch back. It may be called once, by any goroutine, also
// after Close. If it is called twice, it panics or takes away somebody else's batch.
func (b *Batch) Release() {
	if !b.held.Swap(false) {
		panic("blackbox: a batch is released twice")
	}
	b.worker.queue.release(b.parcel.size)
	b.parcel.done()
}

// parcel is what a shard received at once, divided among its workers.
type parcel struct {
	shard *shard
	batch sockets.Batch
	size  int          // of the bytes that hold the messages
	users atomic.Int32 // parts that are somebody's, and the shard while it hands them out
	parts []Batch      // one a worker

	// Of several workers.
	sorted []sockets.Span // the batch's, by worker
	owner  []uint16       // the worker of each message
	ends   []int          // in sorted, where each worker's messages end
}

// newParcel makes a parcel. The owner of the batches is the shard.
func (s *shard) newParcel() *parcel {
	p := &parcel{shard: s, parts: make([]Batch, len(s.workers)), ends: make([]int, len(s.workers))}
	for i := range p.parts {
		p.parts[i].parcel, p.parts[i].worker = p, s.workers[i]
	}
	return p
}

// divide makes the parts of what was received.
func (p *parcel) divide() {
	spans, wire := p.batch.Spans(), p.batch.Wire()
	p.size = int(spans[len(spans)-1].End - spans[0].Start)
	if len(p.parts) == 1 {
		p.parts[0].wire, p.parts[0].spans = wire, spans
		return
	}
	if cap(p.sorted) < len(spans) {
		p.sorted = make([]sockets.Span, cap(spans))
		p.owner = make([]uint16, cap(spans))
	}
	sorted, owner := p.sorted[:len(spans)], p.owner[:len(spans)]
	ends := p.ends
	clear(ends)
	p.shard.place(wire, spans, owner, ends)
	at := 0
	for i, n := range ends {
		ends[i] = at
		at += n
	}
	for i, s := range spans {
		w := owner[i]
		sorted[ends[w]] = s
		ends[w]++
	}
	at = 0
	for i := range p.parts {
		p.parts[i].wire, p.parts[i].spans = wire, sorted[at:ends[i]]
		at = ends[i]
	}
}

// done takes one user away. After the last one the bytes go back to the socket's
// pool, and the parcel to its shard.
func (p *parcel) done() {
	if p.users.Add(-1) > 0 {
		return
	}
	for i := range p.parts {
		p.parts[i].wire, p.parts[i].spans = nil, nil
	}
	p.batch.Release()
	p.shard.free.put(p)
}
