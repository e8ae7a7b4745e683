package sockets

import (
	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// Batch is a run of messages of one peer, lent by RecvBatch as views into the
// bytes that were read. It holds one reference on those bytes, however many
// messages there are.
//
// Its bytes are valid until the batch is used in the next RecvBatch or
// released. Forgetting to release costs a pool miss, never a corruption. The
// zero Batch is empty and ready for use; a Batch is not safe for concurrent
// use.
type Batch struct {
	chunk *buf.Chunk
	spans []Span
	peer  *Peer
	cost  int // the memory that a queue counts for it, in bytes
}

// Wire returns the bytes that the batch's spans point into. Those outside of
// any span are not the caller's.
func (b *Batch) Wire() []byte {
	if b.chunk == nil {
		return nil
	}
	return b.chunk.Data()
}

// Spans returns the messages' places in Wire. The slice is lent like the
// bytes; its elements may be changed.
func (b *Batch) Spans() []Span { return b.spans }

// SetSpans replaces the spans, for Prepare: usually by a prefix of Spans into
// which the kept ones were moved.
func (b *Batch) SetSpans(spans []Span) { b.spans = spans }

// Rewrite moves the messages to memory of the batch's own, for Prepare that makes
// them longer. It calls fill once with at least size bytes, whose contents are
// undefined. fill writes the messages there, reading them from Wire, and returns
// their places. Wire returns the new bytes afterwards.
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

// Message returns message i as a view.
func (b *Batch) Message(i int) zmtp.Message {
	s := b.spans[i]
	return zmtp.Message(b.chunk.Data()[s.Start:s.End:s.End])
}

// Peer returns who sent the messages.
func (b *Batch) Peer() *Peer { return b.peer }

// Release gives the bytes back. The batch is empty afterwards and can be used
// again.
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

// Owner counts references on bytes that are lent to SendWire. Both methods
// must be safe for concurrent use. Retain is called by SendWire, with locks of
// the socket held, so it must not use the socket; Release by whoever is done
// with the bytes, with no lock held unless a REQ on inproc throws a reply away.
type Owner interface {
	Retain()
	Release()
}

// Message is a message that the receiver owns: its frames, first to last.
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
