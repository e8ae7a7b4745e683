package link

import (
	"errors"
	"net"
	"sync/atomic"
)

// Source takes the bytes that a Stream receives.
type Source interface {
	// Space returns where to put bytes, at least one.
	Space() []byte
	// Received takes over the first n bytes of that space. An error ends
	// the reading, and is what Stream.Receive returns.
	Received(n int) error
	// Idle says that the peer has nothing more for now, so that no big buffer
	// need be held while waiting.
	Idle()
}

// ErrNothing ends a read that was not to wait.
var ErrNothing = errors.New("sockets: nothing to read")

// Stream does the input and output of one connection. The platforms' versions
// are in stream_*.go. One goroutine may receive while another one sends. To wake
// them, set a deadline of Conn.
type Stream struct {
	Conn net.Conn // nil before Init
	// Moved counts the bytes that the system took from us to send. Who reads Conn
	// itself may add what that brings.
	Moved atomic.Int64
	platformStream
}

// maxWrite bounds the bytes of one write, so that no connection keeps the
// processor for long.
const maxWrite = 1 << 20

// Write writes b as Send does. It is used for the handshake and for requests to a
// proxy.
func (s *Stream) Write(b []byte) (int, error) {
	n, err := s.Send([][]byte{b})
	return int(n), err
}

// duplex is a connection that writes as a Stream does.
type duplex struct {
	net.Conn
	Stream
}

// Write writes b.
func (d *duplex) Write(b []byte) (int, error) { return d.Stream.Write(b) }
