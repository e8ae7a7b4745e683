package sockets

import (
	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// notices collects messages that the socket itself has for the application, or
// that it has taken apart, in a chunk of their own.
type notices struct {
	batch Batch
	bytes []byte // the chunk's, as far as they are filled
	more  int    // where the last frame of an unfinished message begins, plus 1
}

// begin prepares for messages that have at most size bytes on the wire.
func (n *notices) begin(size int) {
	if n.batch.chunk == nil {
		n.batch.chunk = buf.Get(size)
		n.bytes = n.batch.chunk.Data()[:0:size]
	}
}

// frame adds a frame to the message that is being built.
func (n *notices) frame(body []byte) {
	if n.more == 0 {
		n.batch.spans = append(n.batch.spans, Span{Start: uint32(len(n.bytes))})
	}
	n.more = len(n.bytes) + 1
	n.bytes = zmtp.AppendFrame(n.bytes, body, true)
}

// finish ends the message that is being built, if there is one.
func (n *notices) finish() {
	if n.more > 0 {
		n.bytes[n.more-1] &^= zmtp.FlagMore
		n.batch.spans[len(n.batch.spans)-1].End = uint32(len(n.bytes))
		n.more = 0
	}
}

// subscription adds a message 01 or 00 and the topic.
func (n *notices) subscription(first byte, topic []byte) {
	n.finish()
	at := len(n.bytes)
	n.bytes = zmtp.AppendHeader(n.bytes, 0, 1+len(topic))
	n.bytes = append(append(n.bytes, first), topic...)
	n.batch.spans = append(n.batch.spans, Span{Start: uint32(at), End: uint32(len(n.bytes))})
}

// put queues all of them, as the given peer's, in one batch. The high-water mark
// does not hold it up, since it does not wait; see settle.
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

// put queues a batch whatever the high-water mark, taking over its chunk
// reference and spans, and leaves it empty. If the queue was cut, it leaves the
// batch as it is and counts its messages as discarded.
func (in *inbox) put(q *inqueue, b *Batch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.add(q, b)
}

// add is put for who holds mu.
func (in *inbox) add(q *inqueue, b *Batch) {
	if q.cut {
		b.peer.discarded.Add(uint64(len(b.spans))) // and the caller releases it
		return
	}
	q.batches.Push(inbatch{Batch: *b})
	q.messages += len(b.spans)
	q.cost += b.cost
	*b = Batch{}
	in.list(q)
}

// crowded reports whether a queue is at its high-water mark, or beyond. mu must be
// held.
func (in *inbox) crowded(q *inqueue) bool {
	return q.messages >= in.limits.messages || q.cost >= in.limits.bytes && q.messages > 0
}

// isCrowded is crowded for callers that do not hold mu.
func (in *inbox) isCrowded(q *inqueue) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.crowded(q)
}

// settle waits while the queue is at its high-water mark, or beyond, where put
// may take it. Several readers may wait for the same queue. It returns false
// when the socket or the connection ended first.
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
		// The token was for one reader, the room is for all. One that nobody
		// fetches wakes the next waiter for nothing, who only looks again.
		select {
		case q.resume <- struct{}{}:
		default:
		}
	}
	return true
}
