package queue

import (
	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// Batch is a run of messages from one connection.
type Batch struct {
	Chunk *buf.Chunk // the bytes, of which it holds a reference
	Spans []buf.Span
	From  *Conn
	Cost  int // the memory that a queue counts for it, in bytes
}

// Release releases the messages, and keeps the room for spans.
func (b *Batch) Release() {
	if b.Chunk != nil {
		b.Chunk.Release()
	}
	*b = Batch{Spans: b.Spans[:0]}
}

// drop releases messages that the application does not receive.
func (b *Batch) drop() {
	b.From.Discard(len(b.Spans))
	b.Release()
}

// Single is one message that was taken out of the inbox, with a reference on its
// bytes.
type Single struct {
	Chunk *buf.Chunk
	Span  buf.Span
	From  *Conn
}

// Wire returns the message.
func (m *Single) Wire() zmtp.WireMessage {
	return zmtp.WireMessage(m.Chunk.Data()[m.Span.Start:m.Span.End:m.Span.End])
}

// spans keeps emptied span slices for reuse.
type spans struct {
	free [][]buf.Span
	room int // of all, in spans
}

// get returns an empty slice.
func (f *spans) get() []buf.Span {
	n := len(f.free)
	if n == 0 {
		return nil
	}
	s := f.free[n-1]
	f.free[n-1] = nil
	f.free = f.free[:n-1]
	f.room -= cap(s)
	return s
}

func (f *spans) put(s []buf.Span) {
	if cap(s) > 0 && f.room+cap(s) <= spareSpans {
		f.free = append(f.free, s[:0])
		f.room += cap(s)
	}
}

// Spare returns an empty span slice for a reader to fill.
func (in *Inbox) Spare() []buf.Span {
	in.lock()
	s := in.spare.get()
	in.mu.Unlock()
	return s
}

// Recycle takes back one that was not put.
func (in *Inbox) Recycle(s []buf.Span) {
	in.lock()
	in.spare.put(s)
	in.mu.Unlock()
}
