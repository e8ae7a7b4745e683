package blackbox

import (
	"sync/atomic"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Batch has messages for one worker from one publisher, in the order in which they were
// received.
//
// It is valid until Options.Handle returns or, after Keep, until Release. Then it is
// reused, and its messages must not be used any more. A Batch is not safe for concurrent
// use; a kept one may be passed to another goroutine.
type Batch struct {
	wire   []byte
	spans  []buf.Span
	chunk  *chunk
	worker *worker
	held   atomic.Bool // in use by the worker
}

// Len returns the number of messages, at least 1.
func (b *Batch) Len() int { return len(b.spans) }

// Message returns message i, as a view of the received bytes. Its first frame is the
// topic.
func (b *Batch) Message(i int) zmtp.WireMessage {
	s := b.spans[i]
	return zmtp.WireMessage(b.wire[s.Start:s.End:s.End])
}

// Shard returns the index of its shard in Options.Shards.
func (b *Batch) Shard() int { return b.worker.shard.index }

// Worker returns the number of its worker, less than Box.Workers. Calls of Handle with
// the same number are not concurrent, so workers can have state in a slice indexed by
// it, without locks.
func (b *Batch) Worker() int { return b.worker.number }

// Keep keeps the batch valid after Handle returns, until Release. Only the goroutine that
// runs Handle may call it. A kept batch counts for the worker's queue
// (Options.QueueBatches).
func (b *Batch) Keep() { b.worker.kept = true }

// Release releases a kept batch. Any goroutine may call it, once, also after Close. A
// second call panics, or releases the batch for which the memory was reused.
func (b *Batch) Release() {
	if !b.held.Swap(false) {
		panic("blackbox: batch released twice")
	}
	b.worker.queue.release(b.chunk.size)
	b.chunk.done()
}

// chunk has the messages of one receive call, divided among the workers of a shard.
type chunk struct {
	shard *shard
	batch sockets.Batch
	size  int          // bytes of the messages
	users atomic.Int32 // parts in use, plus one while the shard distributes them
	parts []Batch      // one for each worker

	// For several workers.
	sorted []buf.Span // the spans of batch, by worker
	owner  []uint16   // the worker of each message
	ends   []int      // the ends of each worker's spans in sorted
}

func (s *shard) newChunk() *chunk {
	p := &chunk{shard: s, parts: make([]Batch, len(s.workers)), ends: make([]int, len(s.workers))}
	for i := range p.parts {
		p.parts[i].chunk, p.parts[i].worker = p, s.workers[i]
	}
	return p
}

// divide sets the parts to the received messages.
func (p *chunk) divide() {
	b := (*hooks.Batch)(&p.batch)
	spans, wire := b.Spans(), b.Wire()
	p.size = int(spans[len(spans)-1].End - spans[0].Start)
	if len(p.parts) == 1 {
		p.parts[0].wire, p.parts[0].spans = wire, spans
		return
	}
	if cap(p.sorted) < len(spans) {
		p.sorted = make([]buf.Span, cap(spans))
		p.owner = make([]uint16, cap(spans))
	}
	sorted, owner := p.sorted[:len(spans)], p.owner[:len(spans)]
	ends := p.ends
	clear(ends)
	p.shard.assignWorkers(wire, spans, owner, ends)
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

// done removes a user. After the last one it returns the bytes to the socket's pool, and
// the chunk to its shard.
func (p *chunk) done() {
	if p.users.Add(-1) > 0 {
		return
	}
	for i := range p.parts {
		p.parts[i].wire, p.parts[i].spans = nil, nil
	}
	p.batch.Release()
	p.shard.free.put(p)
}
