package sockets

import (
	"clustermap/internal/buf"
	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Span is the place of one message in the bytes of a [Batch]. Its fields Start
// and End, of type uint32, are the half-open range of the message in
// [Batch.Wire].
//
// Its field Tag, of type uint64, is for use by [Options.Prepare], which can store a value
// there that it computes from a message, such as a hash. Otherwise it is 0.
//
// It is part of the advanced interface; see the package documentation.
type Span = buf.Span

// Batch is a run of messages from one peer, filled by RecvBatch. It refers to
// the bytes that were read from the network and does not copy them.
//
// The messages are valid until the Batch is passed to RecvBatch again or
// released. A Batch that is not released is left to the garbage collector,
// which is safe but slower. The zero Batch is empty and ready to use. A Batch
// must not be used concurrently.
type Batch engine.Batch

func (b *Batch) engine() *engine.Batch { return (*engine.Batch)(b) }

// Wire returns the bytes to which the spans of the batch refer. The caller must
// not use bytes outside the spans.
//
// It is part of the advanced interface; see the package documentation.
func (b *Batch) Wire() []byte { return b.engine().Wire() }

// Spans returns the places of the messages in Wire. The slice is valid as long
// as the messages; its elements may be changed.
//
// It is part of the advanced interface; see the package documentation.
func (b *Batch) Spans() []Span { return b.engine().Spans() }

// SetSpans replaces the spans. [Options.Prepare] can use it to drop messages:
// usually it moves the spans to keep to the beginning of Spans and sets that
// prefix.
//
// It is part of the advanced interface; see the package documentation.
func (b *Batch) SetSpans(spans []Span) { b.engine().SetSpans(spans) }

// Len returns the number of messages.
func (b *Batch) Len() int { return b.engine().Len() }

// Message returns message i. It refers to the bytes of the batch.
func (b *Batch) Message(i int) zmtp.WireMessage { return b.engine().Message(i) }

// Peer returns the peer that sent the messages.
func (b *Batch) Peer() *Peer { return (*Peer)(b.engine().Peer()) }

// Release releases the messages, so that their memory can be reused. The Batch
// is then empty and can be used again.
func (b *Batch) Release() { b.engine().Release() }

// Owner counts the references to bytes that were passed to a SendWire method
// without copying. Both methods must be safe for concurrent use.
//
// SendWire calls Retain with locks of the socket held, so Retain must not use
// the socket. Release is called when the socket needs the bytes no longer, with
// no lock held, except when a REQ discards a reply that it has received over
// inproc.
//
// It is part of the advanced interface; see the package documentation.
type Owner = queue.Owner

// Message is a received message, which the receiver owns: its frames, in order.
type Message [][]byte
