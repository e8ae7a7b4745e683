package blackbox

import (
	"sync"

	"clustermap/internal/fifo"
)

// queue is a worker's queue. It bounds the batches that the worker has.
type queue struct {
	policy         Policy
	batches, bytes int // the bounds

	mu     sync.Mutex
	ready  sync.Cond // the worker waits here for a batch
	room   sync.Cond // the shard waits here for room
	queued fifo.Queue[*Batch]
	held   int // batches that are queued, in Handle or kept
	size   int // their bytes
	closed bool

	given   uint64 // messages
	dropped uint64 // messages
	waits   uint64 // times the shard waited
}

func (q *queue) init(o *Options) {
	q.policy, q.batches, q.bytes = o.Policy, o.QueueBatches, o.QueueBytes
	q.ready.L, q.room.L = &q.mu, &q.mu
}

// full reports whether there is no room for another batch. mu must be held.
func (q *queue) full() bool {
	return q.held > 0 && (q.held >= q.batches || q.size >= q.bytes)
}

// reserve counts a batch as held when there is room. It returns false if the batch is
// dropped instead. mu must be held.
func (q *queue) reserve(b *Batch) bool {
	if q.full() && q.policy == PolicyBlock && !q.closed {
		q.waits++
		for q.full() && !q.closed {
			q.room.Wait()
		}
	}
	if q.closed || q.full() {
		q.dropped += uint64(b.Len())
		return false
	}
	q.held++
	q.size += b.chunk.size
	q.given += uint64(b.Len())
	return true
}

// admit reserves room for a batch without queuing it.
func (q *queue) admit(b *Batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reserve(b)
}

func (q *queue) push(b *Batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.reserve(b) {
		return false
	}
	q.queued.Push(b)
	q.ready.Signal()
	return true
}

// pop waits for a batch. It returns nil when the queue is closed.
func (q *queue) pop() *Batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.queued.Len() == 0 && !q.closed {
		q.ready.Wait()
	}
	if q.closed {
		return nil
	}
	return q.queued.Pop()
}

// release removes a batch of the given size from the held ones.
func (q *queue) release(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held--
	q.size -= size
	q.room.Signal()
}

// close ends all waits. The queue accepts no more batches.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
	q.room.Broadcast()
}

// discard drops the queued batches after close.
func (q *queue) discard() {
	for {
		q.mu.Lock()
		if q.queued.Len() == 0 {
			q.mu.Unlock()
			return
		}
		b := q.queued.Pop()
		q.given -= uint64(b.Len())
		q.dropped += uint64(b.Len())
		q.mu.Unlock()
		b.Release()
	}
}

func (q *queue) stats() WorkerStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return WorkerStats{Messages: q.given, Dropped: q.dropped, Waits: q.waits, Held: q.held, HeldBytes: q.size}
}
