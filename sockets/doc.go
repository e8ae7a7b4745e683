// Package sockets provides ZeroMQ sockets in pure Go: [Req] and [Rep], [Router]
// and [Dealer], [Push] and [Pull], [Pub] and [Sub], [XPub] and [XSub], and
// [Pair]. They communicate over TCP, over Unix domain sockets, and within a
// process (see [Inproc]).
//
// Sockets speak ZMTP 3.1 (RFC 37) and fall back to ZMTP 3.0, 2.0 and 1.0, so
// they interoperate with any program that uses libzmq. The security mechanisms
// are NULL, PLAIN and CURVE; see [Security].
//
// # Use
//
// A constructor such as [NewDealer] takes [Options] and returns a socket. A
// socket can bind to and connect to any number of endpoints, in any order.
// Connect returns before the connection is established; the socket connects in
// the background, and reconnects with back-off if a connection is lost.
//
// All methods of all sockets are safe for concurrent use. A message consists of
// one or more frames and is sent and received as a whole.
//
// Every method that may wait takes a context. Send and receive methods check
// the context only when they have to wait: if they can complete immediately
// they do so, even if the context is done. A loop that must stop when its
// context is done should therefore also check ctx.Err.
//
// There are two ways to receive messages. Recv returns one message, which the
// caller owns. RecvBatch returns a [Batch] of messages from one peer that
// refers to the bytes read from the network; it copies nothing and, once
// buffers have been pooled, allocates nothing.
//
// # Limits
//
// Every queue is limited in messages and in bytes; see [Options]. When a
// receive queue reaches its high-water mark, the socket stops reading from that
// peer, and the peer in turn has to wait. When a send queue reaches its
// high-water mark, the socket waits, drops the message, or disconnects the
// peer, depending on the socket type and on [Options.FullPolicy]. The socket
// never allocates memory by a size that a peer has only announced.
//
// # Performance
//
// Sockets read, decode, queue and write messages in batches, so the cost of
// system calls, locks, wake-ups and counters is paid once per batch. The file
// docs/DESIGN.md describes the path of a message and the ownership of buffers.
package sockets
