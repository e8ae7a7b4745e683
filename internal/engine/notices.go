package engine

import (
	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Notices collects, in a chunk of their own, messages for the application that
// the socket itself creates or that it has taken apart.
type Notices struct {
	batch queue.Batch
	bytes []byte // the part of the chunk that is filled
	more  int    // offset of the last frame of an unfinished message, plus 1
}

// Begin prepares for messages of at most size bytes on the wire.
func (n *Notices) Begin(size int) {
	if n.batch.Chunk == nil {
		n.batch.Chunk = buf.Get(size)
		n.bytes = n.batch.Chunk.Data()[:0:size]
	}
}

// Frame appends a frame to the current message.
func (n *Notices) Frame(body []byte) {
	if n.more == 0 {
		n.batch.Spans = append(n.batch.Spans, buf.Span{Start: uint32(len(n.bytes))})
	}
	n.more = len(n.bytes) + 1
	n.bytes = zmtp.AppendFrame(n.bytes, body, true)
}

// Finish ends the current message, if there is one.
func (n *Notices) Finish() {
	if n.more > 0 {
		n.bytes[n.more-1] &^= zmtp.FlagMore
		n.batch.Spans[len(n.batch.Spans)-1].End = uint32(len(n.bytes))
		n.more = 0
	}
}

// Subscription appends a message of byte 1 or 0 and the topic.
func (n *Notices) Subscription(first byte, topic []byte) {
	n.Finish()
	at := len(n.bytes)
	n.bytes = zmtp.AppendHeader(n.bytes, 0, 1+len(topic))
	n.bytes = append(append(n.bytes, first), topic...)
	n.batch.Spans = append(n.batch.Spans, buf.Span{Start: uint32(at), End: uint32(len(n.bytes))})
}

// Put queues all messages in one batch from the given peer. It does not wait,
// so the queue may exceed its high-water mark; see Inbox.Settled.
func (n *Notices) Put(s *Socket, q *queue.Inqueue, peer *Peer) {
	if n.batch.Chunk == nil {
		return
	}
	n.Finish()
	n.batch.From = &peer.conduit
	n.batch.Cost = len(n.batch.Chunk.Data()) + spanCost*len(n.batch.Spans)
	s.In.Put(q, &n.batch, nil)
	n.bytes = nil
}

// EmptyMessage is a message of one empty frame, in wire form.
var EmptyMessage = []byte{0, 0}

// Notify makes the application receive an empty message from a peer.
func (s *Socket) Notify(peer *Peer) {
	var n Notices
	n.Begin(len(EmptyMessage))
	n.Frame(nil)
	n.Put(s, &peer.pipe.In, peer)
}

// tellEnd makes the application receive the message that reports the end of an
// established connection. It does not wait for room. For peers that will not
// connect again the memory is limited elsewhere (see leave); for the others,
// the message is dropped if there is no room.
func (s *Socket) tellEnd(p *Pipe, peer *Peer) {
	message := peer.conn.config.Parting
	if p.Lasting {
		message = peer.conn.config.Hiccup
	}
	if len(message) == 0 {
		return
	}
	if _, full, _ := s.In.Look(&p.In); p.Lasting && full {
		peer.conduit.Discard(1)
		return
	}
	var n Notices
	n.Begin(zmtp.FrameSize(len(message)))
	n.Frame(message)
	n.Put(s, &p.In, peer)
}
