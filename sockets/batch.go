package sockets

import (
	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// Batch is a run of messages from one peer, filled by RecvBatch. It refers to
// the bytes that were read from the network and does not copy them.
//
// The messages are valid until the Batch is passed to RecvBatch again or
// released. A Batch that is not released is left to the garbage collector,
// which is safe but slower. The zero Batch is empty and ready to use. A Batch
// must not be used concurrently.
type Batch struct {
	chunk *buf.Chunk
	spans []Span
	peer  *Peer
	cost  int // the memory that a queue counts for it, in bytes
}

// Wire returns the bytes to which the spans of the batch refer. The caller must
// not use bytes outside the spans.
func (b *Batch) Wire() []byte {
	if b.chunk == nil {
		return nil
	}
	return b.chunk.Data()
}

// Spans returns the places of the messages in Wire. The slice is valid as long
// as the messages; its elements may be changed.
func (b *Batch) Spans() []Span { return b.spans }

// SetSpans replaces the spans. [Options.Prepare] can use it to drop messages:
// usually it moves the spans to keep to the beginning of Spans and sets that
// prefix.
func (b *Batch) SetSpans(spans []Span) { b.spans = spans }

// Rewrite moves the messages to new memory. [Options.Prepare] can use it to
// make messages longer. Rewrite calls fill once with at least size bytes of
// undefined contents. fill must write the messages there, reading them from
// Wire, and return their places. After that Wire returns the new bytes.
func (b *Batch) Rewrite(size int, fill func(dst []byte) []Span) {
	c := buf.Get(size)
	b.spans = fill(c.Data())
	if b.chunk != nil {
		b.chunk.Release()
	}
	b.chunk = c
}

// Len returns the number of messages.
func (b *Batch) Len() int { return len(b.spans) }

// Message returns message i. It refers to the bytes of the batch.
func (b *Batch) Message(i int) zmtp.Message {
	s := b.spans[i]
	return zmtp.Message(b.chunk.Data()[s.Start:s.End:s.End])
}

// Peer returns the peer that sent the messages.
func (b *Batch) Peer() *Peer { return b.peer }

// Release releases the messages, so that their memory can be reused. The Batch
// is then empty and can be used again.
func (b *Batch) Release() {
	if b.chunk != nil {
		b.chunk.Release()
		b.chunk = nil
	}
	b.spans = b.spans[:0]
	b.peer, b.cost = nil, 0
}

// bytes returns the size of the messages.
func (b *Batch) bytes() int {
	n := 0
	for _, s := range b.spans {
		n += int(s.End - s.Start)
	}
	return n
}

// compact moves the messages, of the given size, to a chunk of their own.
func (b *Batch) compact(bytes int) {
	small := buf.Get(bytes)
	at := 0
	for i, s := range b.spans {
		n := copy(small.Data()[at:], b.chunk.Data()[s.Start:s.End])
		b.spans[i].Start, b.spans[i].End = uint32(at), uint32(at+n)
		at += n
	}
	b.chunk.Release()
	b.chunk = small
}

// Owner counts the references to bytes that were passed to a SendWire method
// without copying. Both methods must be safe for concurrent use.
//
// SendWire calls Retain with locks of the socket held, so Retain must not use
// the socket. Release is called when the socket needs the bytes no longer, with
// no lock held, except when a REQ discards a reply that it has received over
// inproc.
type Owner interface {
	Retain()
	Release()
}

// Message is a received message, which the receiver owns: its frames, in order.
type Message [][]byte

// own copies a wire message into memory of its own: two allocations however
// many frames there are. lead, if not nil, becomes an extra first frame.
func own(wire zmtp.Message, lead []byte) Message {
	n := wire.Len()
	bytes := make([]byte, 0, len(wire)+len(lead))
	frames := make(Message, 0, n+1)
	if lead != nil {
		bytes = append(bytes, lead...)
		frames = append(frames, bytes[:len(lead):len(lead)])
	}
	for len(wire) > 0 {
		var body []byte
		body, wire = wire.Next()
		at := len(bytes)
		bytes = append(bytes, body...)
		frames = append(frames, bytes[at:len(bytes):len(bytes)])
	}
	return frames
}
