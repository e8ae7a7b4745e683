package sockets

import (
	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// notices collects, in a chunk of their own, messages for the application that
// the socket itself creates or that it has taken apart.
type notices struct {
	batch queue.Batch
	bytes []byte // the part of the chunk that is filled
	more  int    // offset of the last frame of an unfinished message, plus 1
}

// begin prepares for messages of at most size bytes on the wire.
func (n *notices) begin(size int) {
	if n.batch.Chunk == nil {
		n.batch.Chunk = buf.Get(size)
		n.bytes = n.batch.Chunk.Data()[:0:size]
	}
}

// frame appends a frame to the current message.
func (n *notices) frame(body []byte) {
	if n.more == 0 {
		n.batch.Spans = append(n.batch.Spans, Span{Start: uint32(len(n.bytes))})
	}
	n.more = len(n.bytes) + 1
	n.bytes = zmtp.AppendFrame(n.bytes, body, true)
}

// finish ends the current message, if there is one.
func (n *notices) finish() {
	if n.more > 0 {
		n.bytes[n.more-1] &^= zmtp.FlagMore
		n.batch.Spans[len(n.batch.Spans)-1].End = uint32(len(n.bytes))
		n.more = 0
	}
}

// subscription appends a message of byte 1 or 0 and the topic.
func (n *notices) subscription(first byte, topic []byte) {
	n.finish()
	at := len(n.bytes)
	n.bytes = zmtp.AppendHeader(n.bytes, 0, 1+len(topic))
	n.bytes = append(append(n.bytes, first), topic...)
	n.batch.Spans = append(n.batch.Spans, Span{Start: uint32(at), End: uint32(len(n.bytes))})
}

// put queues all messages in one batch from the given peer. It does not wait,
// so the queue may exceed its high-water mark; see Inbox.Settled.
func (n *notices) put(in *queue.Inbox, q *queue.Inqueue, peer *Peer) {
	if n.batch.Chunk == nil {
		return
	}
	n.finish()
	n.batch.From = &peer.conduit
	n.batch.Cost = len(n.batch.Chunk.Data()) + spanCost*len(n.batch.Spans)
	in.Put(q, &n.batch, nil)
	n.bytes = nil
}
