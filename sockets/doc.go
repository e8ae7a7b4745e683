// Package sockets provides ZeroMQ sockets in pure Go: [Req] and [Rep],
// [Router] and [Dealer], [Push] and [Pull], [Pair], [Pub] and [Sub], [XPub] and
// [XSub], over TCP, Unix domain sockets and within a program. To other programs
// they talk ZMTP 3.1 (RFC 37) and all versions before, with the mechanisms NULL,
// PLAIN and CURVE; any libzmq program will do.
//
// # Use
//
// A socket binds and connects in any order and any number of times; connecting
// is asynchronous, and a lost connection is dialled again with back-off.
// Everything is safe for concurrent use, a multipart message is atomic, and
// every call that waits takes a context. A call to send or receive checks its
// context only when it has to wait: if it can succeed at once, it does, even if the
// context has ended. A loop whose calls may never wait must check ctx.Err itself.
//
// There are two ways to receive. Recv returns a message that the caller owns.
// RecvBatch lends many messages of one peer at once, as views into the bytes
// that were read from the network, and allocates nothing.
//
// # Bounds
//
// Every queue is bounded in messages and in bytes ([Options]). A receiver
// that falls behind stops reading its peer, which slows the peer; a sender
// whose peer falls behind blocks, drops or disconnects, as the socket type and
// [Options.FullPolicy] say. Nothing is allocated by a size that a peer merely
// announced.
//
// # Cost
//
// System calls, locks, wake-ups and counters are paid once a batch. See
// docs/DESIGN.md for the data path and the ownership of buffers.
package sockets
