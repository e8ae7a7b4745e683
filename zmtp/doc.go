// Package zmtp is the wire codec of ZMTP 3.1, the ZeroMQ Message Transport
// Protocol (RFC 37; a 3.0 peer, RFC 23, speaks the same frames).
//
// The package does no input or output: it imports no net package, starts no
// goroutine and reads no clock. Bytes go in, bytes and facts come out, so
// the same code serves TCP, Unix sockets, tests and fuzzers.
//
// A connection passes through two stages:
//
//   - [Handshake] produces the greeting, takes the peer's, and runs a security
//     [Mechanism] (NULL unless another is given) until traffic may start. It may
//     hand over a [Codec] that stands between the connection and all below.
//   - [Decoder] cuts the stream that follows into whole messages and commands.
//
// What is sent is made by functions that append to a slice: [AppendMessage],
// [AppendFrame], [AppendSubscribe], [AppendPing] and so on.
//
// # Messages
//
// A [Message] is kept as its wire bytes, frame headers included. Decoding is
// therefore only finding where a message ends, and forwarding one is copying a
// single run of bytes. [Message.Next] walks over the frames.
//
// # Security
//
// NULL, PLAIN (RFC 24) and CURVE (RFC 26) are there: [NewNull], [NewPlainClient],
// [NewPlainServer], [NewCurveClient], [NewCurveServer]. A server's handshake stops
// until its caller has judged the peer's credentials ([Handshake.Credentials]).
// Only CURVE encrypts and authenticates what is sent. Its keys ([GenerateKeyPair])
// are written in Z85 (RFC 32).
//
// # Allocation
//
// Encoding into a slice with room, decoding and walking messages allocate
// nothing. No size announced by a peer is ever allocated: the decoder works in
// the caller's buffer, and only [Decoder.Need] tells how much of it would be
// useful. Errors and the metadata of a handshake are allocated, in proportion
// to the bytes that have arrived.
//
// # Limits
//
// See [Limits]. They are enforced from a frame's header, before its body
// arrives.
//
// # Concurrency
//
// The functions, and the values [Message], [Command], [Metadata] and [Greeting]
// as long as nobody changes them, may be used by many goroutines. A [Decoder],
// a [Handshake] and a [Mechanism] belong to one goroutine at a time.
package zmtp
