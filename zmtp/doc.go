// Package zmtp implements the wire protocol of ZeroMQ: ZMTP 3.1, the ZeroMQ
// Message Transport Protocol (RFC 37), and the handshake and framing of its
// predecessors 3.0 (RFC 23), 2.0 (RFC 15) and 1.0 (RFC 13).
//
// The package performs no input or output: it does not import package net and
// starts no goroutines. The caller passes in the bytes it has received, and
// gets back the bytes to send and the messages decoded. So the same code serves
// TCP, Unix domain sockets, tests and fuzzers.
//
// A connection passes through two stages:
//
//   - A [Handshake] exchanges greetings with the peer and runs a security
//     [Mechanism], by default NULL. If the traffic that follows is not plain
//     ZMTP 3, the handshake provides a [Codec] that translates it.
//   - A [Decoder] splits the bytes that follow into messages and commands.
//
// To send, use the functions that append to a slice, such as [AppendMessage],
// [AppendFrame], [AppendSubscribe] and [AppendPing].
//
// # Messages
//
// A [WireMessage] is represented by its bytes on the wire, including the frame
// headers. So decoding only finds where a message ends, and forwarding a
// message copies a single run of bytes. [WireMessage.Next] iterates over the
// frames.
//
// # Security
//
// The mechanisms are NULL ([NewNull]), PLAIN (RFC 24; [NewPlainClient],
// [NewPlainServer]) and CURVE (RFC 25 and 26; [NewCurveClient],
// [NewCurveServer]). The handshake of a server pauses until the caller has
// checked the client's credentials; see [Handshake.Credentials]. Only CURVE
// encrypts and authenticates the traffic. Its keys ([GenerateKeyPair]) have a
// text form, Z85 (RFC 32).
//
// # Allocation
//
// Encoding into a slice with enough capacity, decoding, and iterating over
// messages do not allocate. The package never allocates memory by a size that a
// peer has only announced: a Decoder works in the caller's buffer, and
// [Decoder.Need] tells how large that should be. Errors and the metadata of a
// handshake are allocated, in proportion to the bytes received.
//
// # Limits
//
// [Limits] restricts the frames and messages of a peer. A limit is checked when the
// header of a frame arrives, before its body.
//
// # Concurrency
//
// Functions may be called concurrently. Values of type [WireMessage], [Command],
// [Metadata] and [Greeting] may be read concurrently. A [Decoder], a
// [Handshake] and a [Mechanism] must be used by one goroutine at a time.
package zmtp
