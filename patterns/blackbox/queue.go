package blackbox

import "sync"

// queue is what a shard has given to one worker, and the bound on it.
type queue struct {
	policy         Policy
	batches, bytes int // the bound

	mu     sync.Mutex
	some   sync.Cond // the worker waits here for a batch
	room   sync.Cond // the shard waits here for room
	ring   []*Batch  // what is queued
	first  int       // in ring
	queued int
	held   int // batches that are queued, in work or kept
	size   int // of these, in bytes
	closed bool

	given   uint64 // messages
	dropped uint64 // messages
	waits   uint64 // how often the shard has waited
}

func (q *queue) init(o *Options) {
	q.policy, q.batches, q.bytes = o.Policy, o.QueueBatches, o.QueueBytes
	q.some.L, q.room.L = &q.mu, &q.mu
	q.ring = make([]*Batch, q.batches)
}

// full says that the worker has as much as it may. mu must be held.
func (q *queue) full() bool {
	return q.held > 0 && (q.held >= q.batches || q.size >= q.bytes)
}

// reserve counts a batch as the worker's, once there is room. It returns false if
// the batch is dropped instead. mu must be held.
func (q *queue) reserve(b *Batch) bool {
	if q.full() && q.policy == Block && !q.closed {
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
	q.size += b.parcel.size
	q.given += uint64(b.Len())
	return true
}

// admit reserves room for a batch that is not to be queued.
func (q *queue) admit(b *Batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reserve(b)
}

// push queues a batch.
func (q *queue) push(b *Batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.reserve(b) {
		return false
	}
	at := q.first + q.queued
	if at >= len(q.ring) {
		at -= len(q.ring)
	}
	q.ring[at] = b
	q.queued++
	q.some.Signal()
	return true
}

// pop waits for a batch. It returns nil when the queue is closed.
func (q *queue) pop() *Batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.queued == 0 && !q.closed {
		q.some.Wait()
	}
	if q.closed {
		return nil
	}
	return q.popFirst()
}

// popFirst removes and returns the first batch. mu must be held.
func (q *queue) popFirst() *Batch {
	b := q.ring[q.first]
	q.ring[q.first] = nil
	if q.first++; q.first == len(q.ring) {
		q.first = 0
	}
	q.queued--
	return b
}

// release takes a batch from what the worker has.
func (q *queue) release(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held--
	q.size -= size
	q.room.Signal()
}

// close ends all waiting, and admits nothing more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.some.Broadcast()
	q.room.Broadcast()
}

// discard drops what is queued, after close.
func (q *queue) discard() {
	for {
		q.mu.Lock()
		if q.queued == 0 {
			q.mu.Unlock()
			return
		}
		b := q.popFirst()
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
