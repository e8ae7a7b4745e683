// Package hooks has what packages of this module can do with the types of package sockets and
// programs cannot. Package sockets sets the functions when it is initialized.
package hooks

import (
	"context"

	"clustermap/internal/buf"
)

// Owner is sockets.Owner.
type Owner interface {
	Retain()
	Release()
}

// Scan sets a function of a socket, before it is bound or connected. The function is called
// with received bytes that begin where a message begins, before the socket decodes that
// message. If b begins with a whole message of a form that it knows, it returns the size of the
// message with all its frames, and the Tag for its span. Otherwise it returns 0, and the socket
// decodes as usual. So messages of a fixed form need one pass over their frames where decoding
// and Options.Prepare need two.
//
// The function is called in the goroutine that reads the connection. It must not change or
// retain b, and must not block. It is not called for messages over inproc, nor of a STREAM.
var Scan func(socket any, f func(b []byte) (size int, tag uint64))

// SendSpans is Pub.SendWire, of a *sockets.Pub or *sockets.XPub, for callers that know the
// sizes of the messages, which saves finding where each message ends. The messages in wire must
// follow one another and have the sizes of the spans, in order. Only End-Start of a span matters.
var SendSpans func(ctx context.Context, pub any, wire []byte, spans []buf.Span, owner Owner) error

// SendTo queues messages of an *sockets.XPub for one *sockets.Peer, regardless of its
// subscriptions: a new subscriber gets the messages that it has missed. wire holds the given
// number of complete messages. The peer receives them in order with all other messages sent to
// it.
//
// SendTo never waits and drops nothing. It ignores the peer's high-water marks, but the
// messages count towards them, and towards Options.SendTotalBytes, for later sends. So a caller
// may hold a lock of its own, and must itself limit the bytes that are in progress.
//
// If owner is nil, SendTo copies wire. Otherwise it keeps a reference to it, however short it
// is: it calls owner.Retain, the bytes must not change, and the socket calls owner.Release when
// it has written them or the connection has ended.
//
// If the peer has disconnected, or is about to be disconnected because it is too slow, the error
// is sockets.ErrUnroutable. If it is nil or belongs to another socket, the error is
// sockets.ErrForeignPeer.
var SendTo func(xpub, peer any, wire []byte, messages int, owner Owner) error

// Rewrite moves the messages of a *sockets.Batch to new memory, for Options.Prepare, to make
// them longer. It calls fill once with at least size bytes of undefined contents. fill must write
// the messages there, reading them from Wire, and return their places. After that Wire returns
// the new bytes.
var Rewrite func(batch any, size int, fill func(dst []byte) []buf.Span)
