package sockets

import "clustermap/internal/engine"

// Inproc is a namespace of inproc endpoints. Sockets of one process that have
// the same namespace in [Options.Inproc] can connect to each other with
// inproc://name. Sockets without a namespace of their own share that of the
// process. A library or a test can use its own namespace to avoid conflicts of
// names. It corresponds to a context in libzmq.
//
// The zero Inproc is empty and ready to use. An Inproc must not be copied. It
// is safe for concurrent use.
//
// Inproc differs from other transports as follows:
//
//   - Messages pass in memory from the sender's queue to the receiver's, with
//     no goroutine in between. In each direction, the queue is limited by the
//     sum of the sender's SendHWM and the receiver's RecvHWM, and likewise in
//     bytes, or unlimited if one of them is. While a Connect is waiting for its
//     Bind, only the connecting side's own limits apply.
//   - There is no handshake, so the options for handshakes, security and
//     heartbeats have no effect, nor does MaxMessageSize on the receiving side.
//     Identities and metadata are exchanged as usual. Incompatible socket types
//     are refused; libzmq accepts them.
//   - Messages sent by a socket that is closed remain available to the
//     receiver, with any Linger of the sender. Linger applies only while a Connect is
//     waiting for its Bind, or for an identity that another connection has; see
//     ErrIdentityInUse.
//   - When Connect, Subscribe, Unsubscribe or Disconnect returns, it has taken
//     effect on both sides. See Subscribe for the one exception.
//   - A connection that has ended is not made again; Connect can be called
//     again. The monitor receives no events of attempts to connect or to
//     accept. In libzmq it receives no events of inproc at all.
//   - Unbind releases the name but does not close the connections.
type Inproc engine.Names

// process is the namespace of sockets without one of their own.
var process Inproc
