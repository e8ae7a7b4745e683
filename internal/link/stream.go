package link

import (
	"errors"
	"net"
	"sync/atomic"
)

// Source receives the bytes that a Stream reads.
type Source interface {
	// Space returns the buffer for the next read. It has at least one byte.
	Space() []byte
	// Received handles the n bytes read into the buffer. If it returns an error,
	// Stream.Receive stops reading and returns that error.
	Received(n int) error
	// Idle is called before the Stream waits for the peer, so that the Source
	// can release a large buffer.
	Idle()
}

// ErrNothing means that there is nothing to read. See Receiving.Poll.
var ErrNothing = errors.New("sockets: nothing to read")

// Stream performs the input and output of one connection. The implementations are
// in stream_*.go. One goroutine may receive while another one sends. To interrupt
// them, set a deadline of Conn.
type Stream struct {
	Conn net.Conn // nil before Init
	// Moved counts the bytes that the system has accepted for sending. A caller
	// that reads Conn itself may add the bytes received.
	Moved atomic.Int64
	platformStream
}

// Write writes b like Send. It is for the handshake and for requests to a proxy.
func (s *Stream) Write(b []byte) (int, error) {
	n, err := s.Send([][]byte{b})
	return int(n), err
}

// duplex is a connection that writes with a Stream.
type duplex struct {
	net.Conn
	Stream
}

// Write writes b.
func (d *duplex) Write(b []byte) (int, error) { return d.Stream.Write(b) }
