package sockets

import (
	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// notices collects, in a chunk of their own, messages for the application that
// the socket itself creates or that it has taken apart.
type notices struct {
	batch Batch
	bytes []byte // the part of the chunk that is filled
	more  int    // offset of the last frame of an unfinished message, plus 1
}

// begin prepares for messages of at most size bytes on the wire.
func (n *notices) begin(size int) {
	if n.batch.chunk == nil {
		n.batch.chunk = buf.Get(size)
		n.bytes = n.batch.chunk.Data()[:0:size]
	}
}

// frame appends a frame to the current message.
func (n *notices) frame(body []byte) {
	if n.more == 0 {
		n.batch.spans = append(n.batch.spans, Span{Start: uint32(len(n.bytes))})
	}
	n.more = len(n.bytes) + 1
	n.bytes = zmtp.AppendFrame(n.bytes, body, true)
}

// finish ends the current message, if there is one.
func (n *notices) finish() {
	if n.more > 0 {
		n.bytes[n.more-1] &^= zmtp.FlagMore
		n.batch.spans[len(n.batch.spans)-1].End = uint32(len(n.bytes))
		n.more = 0
	}
}

// subscription appends a message of byte 1 or 0 and the topic.
func (n *notices) subscription(first byte, topic []byte) {
	n.finish()
	at := len(n.bytes)
	n.bytes = zmtp.AppendHeader(n.bytes, 0, 1+len(topic))
	n.bytes = append(append(n.bytes, first), topic...)
	n.batch.spans = append(n.batch.spans, Span{Start: uint32(at), End: uint32(len(n.bytes))})
}

// put queues all messages in one batch from the given peer. It does not wait,
// so the queue may exceed its high-water mark; see settle.
func (n *notices) put(in *inbox, q *inqueue, peer *Peer) {
	if n.batch.chunk == nil {
		return
	}
	n.finish()
	if b := &n.batch; len(b.spans) > 0 {
		b.peer = peer
		b.cost = len(b.chunk.Data()) + spanCost*len(b.spans)
		in.put(q, b)
	}
	n.batch.Release()
	n.bytes = nil
}

// put queues a batch regardless of the high-water mark. It takes over the chunk
// reference and the spans and leaves b empty. If the queue was cut, it leaves
// the batch as it is and counts its messages as discarded.
func (in *inbox) put(q *inqueue, b *Batch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.add(q, b)
}

// add is like put for callers that hold mu.
func (in *inbox) add(q *inqueue, b *Batch) {
	if q.cut {
		b.peer.discarded.Add(uint64(len(b.spans))) // the caller releases the batch
		return
	}
	q.batches.Push(inbatch{Batch: *b})
	q.messages += len(b.spans)
	q.cost += b.cost
	*b = Batch{}
	in.list(q)
}

// crowded reports whether a queue has reached its high-water mark. mu must be
// held.
func (in *inbox) crowded(q *inqueue) bool {
	return q.messages >= in.limits.messages || q.cost >= in.limits.bytes && q.messages > 0
}

// isCrowded is like crowded for callers that do not hold mu.
func (in *inbox) isCrowded(q *inqueue) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.crowded(q)
}

// settle waits until the queue is below its high-water mark, which put may have
// exceeded. Several readers may wait for the same queue. It returns false if
// the socket or the connection ends first.
func (in *inbox) settle(q *inqueue, gone <-chan struct{}) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	waited := false
	for in.crowded(q) {
		q.blocked, q.until, waited = true, in.limits.low(), true
		in.mu.Unlock()
		ended := false
		select {
		case <-q.resume:
		case <-gone:
			ended = true
		case <-in.done:
			ended = true
		}
		in.mu.Lock()
		if ended {
			return false
		}
	}
	if waited {
		// The token woke one reader, but all may use the room. A token that
		// nobody takes wakes the next waiter, which only checks again.
		select {
		case q.resume <- struct{}{}:
		default:
		}
	}
	return true
}
