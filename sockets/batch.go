package sockets

import (
	"clustermap/internal/engine"
	"clustermap/zmtp"
)

// Batch is a run of messages from one peer, filled by RecvBatch. It refers to
// the bytes that were read from the network and does not copy them.
//
// The messages are valid until the Batch is passed to RecvBatch again or
// released. A Batch that is not released is left to the garbage collector,
// which is safe but slower. The zero Batch is empty and ready to use. A Batch
// must not be used concurrently.
type Batch engine.Batch

func (b *Batch) engine() *engine.Batch { return (*engine.Batch)(b) }

// Len returns the number of messages.
func (b *Batch) Len() int { return b.engine().Len() }

// Message returns message i. It refers to the bytes of the batch.
func (b *Batch) Message(i int) zmtp.WireMessage { return b.engine().Message(i) }

// Peer returns the peer that sent the messages.
func (b *Batch) Peer() *Peer { return (*Peer)(b.engine().Peer()) }

// Release releases the messages, so that their memory can be reused. The Batch
// is then empty and can be used again.
func (b *Batch) Release() { b.engine().Release() }

// Message is a received message, which the receiver owns: its frames, in order.
type Message [][]byte
