package sockets

import (
	"net"
	"sync/atomic"
)

// source is what a connection's bytes are received by; see reader.
type source interface {
	// space returns where to put bytes, at least one.
	space() []byte
	// received takes over the first n bytes of that space. An error ends
	// the connection.
	received(n int) error
	// idle says that the peer has nothing more for now, so that no big buffer
	// need be held while waiting.
	idle()
}

// stream does the input and output of one connection. The platforms' versions
// are in stream_*.go.
type stream struct {
	conn net.Conn
	// moved counts the bytes that the system took from us to send, and those that
	// were received in the handshake. See pipe.drain and Peer.taken.
	moved atomic.Int64
	platformStream
}

// maxWrite bounds the bytes of one write, so that no connection keeps the
// processor for long.
const maxWrite = 1 << 20

// Write writes b as send does. It is used for the handshake and for requests to a
// proxy.
func (s *stream) Write(b []byte) (int, error) {
	n, err := s.send([][]byte{b})
	return int(n), err
}

// duplex is a connection that writes as a stream does.
type duplex struct {
	net.Conn
	stream
}

// Write writes b.
func (d *duplex) Write(b []byte) (int, error) { return d.stream.Write(b) }
