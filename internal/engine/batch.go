package engine

import (
	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Batch is a run of messages from one peer. It refers to the bytes that were read from the
// network. Its fields are hidden because sockets.Batch is a type with the same ones.
type Batch struct {
	q queue.Batch
}

// Queue returns the batch as the queues know it.
func (b *Batch) Queue() *queue.Batch { return &b.q }

// Wire returns the bytes to which the spans refer. The caller must not use bytes outside
// the spans.
func (b *Batch) Wire() []byte {
	if b.q.Chunk == nil {
		return nil
	}
	return b.q.Chunk.Data()
}

// Spans returns the places of the messages in Wire. The slice is valid as long
// as the messages; its elements may be changed.
func (b *Batch) Spans() []buf.Span { return b.q.Spans }

// SetSpans replaces the spans: usually by a prefix of Spans to which those to keep were
// moved.
func (b *Batch) SetSpans(spans []buf.Span) { b.q.Spans = spans }

// Rewrite moves the messages to new memory, to make them longer. It calls fill once with at
// least size bytes of undefined contents. fill must write the messages there, reading them
// from Wire, and return their places.
func (b *Batch) Rewrite(size int, fill func(dst []byte) []buf.Span) {
	c := buf.Get(size)
	b.q.Spans = fill(c.Data())
	if b.q.Chunk != nil {
		b.q.Chunk.Release()
	}
	b.q.Chunk = c
}

// Len returns the number of messages.
func (b *Batch) Len() int { return len(b.q.Spans) }

// Message returns message i. It refers to the bytes of the batch.
func (b *Batch) Message(i int) zmtp.WireMessage {
	s := b.q.Spans[i]
	return zmtp.WireMessage(b.q.Chunk.Data()[s.Start:s.End:s.End])
}

// Peer returns the peer that sent the messages.
func (b *Batch) Peer() *Peer { return PeerOf(b.q.From) }

// Release releases the messages. The Batch is then empty.
func (b *Batch) Release() { b.q.Release() }

// Keep drops the messages that do not match, and counts them as discarded.
func (b *Batch) Keep(matches func(m zmtp.WireMessage) bool) {
	kept := b.q.Spans[:0]
	for i, span := range b.q.Spans {
		if matches(b.Message(i)) {
			kept = append(kept, span)
		}
	}
	b.q.From.Discard(len(b.q.Spans) - len(kept))
	b.q.Spans = kept
}

// Lender returns the owner of the bytes if they may be lent. It
// returns nil if the messages are only a small part of the bytes, because a
// queue would then occupy many times the memory that it counts; the messages
// must be copied.
func (b *Batch) Lender() queue.Owner {
	c := b.q.Chunk
	if b.bytes() < len(c.Data())/stayPart {
		return nil
	}
	return c
}

// SpansSize returns the size of the messages of spans.
func SpansSize(spans []buf.Span) (n int) {
	for _, s := range spans {
		n += int(s.End - s.Start)
	}
	return n
}

func (b *Batch) bytes() int { return SpansSize(b.q.Spans) }

// compact moves the messages, of the given size, to a chunk of their own.
func (b *Batch) compact(bytes int) {
	small := buf.Get(bytes)
	at := 0
	for i, s := range b.q.Spans {
		n := copy(small.Data()[at:], b.q.Chunk.Data()[s.Start:s.End])
		b.q.Spans[i].Start, b.q.Spans[i].End = uint32(at), uint32(at+n)
		at += n
	}
	b.q.Chunk.Release()
	b.q.Chunk = small
}
