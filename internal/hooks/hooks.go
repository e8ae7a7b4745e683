// Package hooks has what packages of this module can do with the types of package sockets and
// programs cannot: they handle messages in wire form, to copy nothing. Package sockets sets the
// functions when it is initialized.
package hooks

import (
	"context"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Batch is a sockets.Batch, with access to its bytes. The pointers to the two convert into one
// another.
type Batch = engine.Batch

// Frames copies the frames of a message, with two allocations however many there are.
func Frames(m zmtp.WireMessage) [][]byte { return engine.Own(m, nil) }

// Owner counts the references to bytes that were passed to a function of this package without
// copying. Both methods must be safe for concurrent use.
//
// Retain is called with locks of the socket held, so it must not use the socket. Release is called
// when the socket needs the bytes no longer, with no lock held, except when a REQ discards a reply
// that it has received over inproc.
type Owner = queue.Owner

// Stage is a pooled buffer, and the Owner of its Bytes: what is appended to them can be sent
// without a copy. Who has got it calls Release when it does not need the bytes itself any more.
type Stage = queue.Stage

// NewStage returns an empty stage.
func NewStage() *Stage { return queue.NewStage() }

// Kind returns the type of a socket.
var Kind func(socket any) zmtp.SocketType

// Prepare sets a function of a socket that receives, before it is bound or connected. It is called
// with each received batch before the batch is queued, in the goroutine that reads the connection,
// so batches of different peers are prepared concurrently. Over inproc, that is the goroutine that
// receives.
//
// The function may change the bytes within a span, shorten or drop spans, set their Tag, and
// rewrite the batch. The batch is valid only during the call. The function must not block. It may
// disconnect the peer, and must not call Disconnect of a socket.
var Prepare func(socket any, f func(*Batch))

// Scan sets a function of a socket, before it is bound or connected. The function is called
// with received bytes that begin where a message begins, before the socket decodes that
// message. If b begins with a whole message of a form that it knows, it returns the size of the
// message with all its frames, and the Tag for its span. Otherwise it returns 0, and the socket
// decodes as usual. So messages of a fixed form need one pass over their frames where decoding
// and Prepare need two.
//
// The function is called in the goroutine that reads the connection. It must not change or
// retain b, and must not block. It is not called for messages over inproc, nor of a STREAM.
var Scan func(socket any, f func(b []byte) (size int, tag uint64))

// Pace sets a function of a socket that receives, before it is bound or connected. It is called with each received
// batch, before Prepare, and returns how long to read no more of the connection after the batch is queued. The peer may not
// be answered for as long. It is not called over inproc.
var Pace func(socket any, f func(*Batch) time.Duration)

// Alone says that the caller has nothing to send soon after the next message through a PUB or
// ROUTER: then its sender writes it, as if nothing had been sent for a while, instead of waking
// a goroutine for that. The messages of a stream are written many at a time.
var Alone func(socket any)

// Client returns who is behind a *sockets.Peer, for bounds over all peers: a value that is
// equal for all connections that a client (the same key, user or address) has at a time.
var Client func(peer any) any

// SendWire sends messages that are already encoded through a socket for which there is a
// sockets.Writer: wire holds the given number of complete messages in ZMTP 3 framing, one after
// another (see zmtp.AppendMessage). It waits, and fails, like the socket's Send.
//
// If owner is nil, it copies wire. Otherwise it may keep a reference to it: it calls owner.Retain,
// the bytes must not change, and the socket calls owner.Release when it has written or dropped
// them. A short run is copied in any case.
//
// A PUSH, DEALER or PAIR sends all of the messages to one peer. A publisher matches each against
// the subscriptions, and copies those for peers that have not subscribed to everything; its queues
// are checked once per call, not per message, and Options.WaitSubscriber does not apply.
var SendWire func(ctx context.Context, socket any, wire []byte, messages int, owner Owner) error

// SendWireTo is SendWire of a *sockets.Router to a *sockets.Peer; it waits, and fails, like
// Router.SendTo.
var SendWireTo func(ctx context.Context, router, peer any, wire []byte, messages int, owner Owner) error

// SendSpans is SendWire of a *sockets.Pub or *sockets.XPub, for callers that know the
// sizes of the messages, which saves finding where each message ends. The messages in wire must
// follow one another and have the sizes of the spans, in order. Only End-Start of a span matters.
var SendSpans func(ctx context.Context, pub any, wire []byte, spans []buf.Span, owner Owner) error

// Admit sets a function of a *sockets.Pub or *sockets.XPub, before it is bound or connected. It is called with each
// subscription of a peer, a *sockets.Peer, before that takes effect. If it returns false, the subscription is
// ignored. It is called with locks of the socket held, so it must not use the socket, and must not block.
var Admit func(pub any, f func(peer any, topic []byte) bool)

// SendTo queues messages of a *sockets.Pub or *sockets.XPub for one *sockets.Peer, regardless of its
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
var SendTo func(pub, peer any, wire []byte, messages int, owner Owner) error

// Topics returns some topics to which a *sockets.Peer of a *sockets.Pub or *sockets.XPub has
// subscribed, at most most and sorted, and how many there are, all without one.
var Topics func(pub, peer any, without string, most int) (some []string, all int)
