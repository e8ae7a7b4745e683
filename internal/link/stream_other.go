//go:build !linux || portable

package link

import (
	"net"
	"time"
)

// platformStream uses net.Conn. The build tag "portable" selects it on Linux too,
// for tests.
type platformStream struct{ connStream }

// BoundSendBuffer does nothing: the buffers of these systems were not measured.
func (s *Stream) BoundSendBuffer() {}

// CanReceiveFor returns false.
func (s *Stream) CanReceiveFor() bool { return false }

// Receiving is not used.
type Receiving struct{ Poll, Spun bool }

// Init does nothing.
func (*Receiving) Init(Source, Spin) {}

// Streaming does nothing.
func (*Receiving) Streaming(bool) {}

// Spin is not used.
type Spin struct{}

// NewSpin returns a Spin, which is not used.
func NewSpin(time.Duration) (s Spin) { return s }

// ReceiveFor is not called, because CanReceiveFor returns false.
func (*Stream) ReceiveFor(*Receiving) error { return ErrNothing }

// Attempt is not used.
type Attempt struct{}

// NewAttempt returns nil.
func NewAttempt(*Stream) *Attempt { return nil }

// Write is not called.
func (*Attempt) Write([]byte) int { return 0 }

// Init sets the connection.
func (s *Stream) Init(conn net.Conn) error {
	s.Conn = conn
	return nil
}

// Receive reads into src until the connection ends or src returns an error, and
// returns the reason.
func (s *Stream) Receive(src Source) error { return s.receive(s.Conn, src) }

// Send writes all of bufs and returns the number of bytes written. It may change the
// elements of bufs.
func (s *Stream) Send(bufs [][]byte) (int64, error) { return s.send(s, bufs) }

// Unconfirmed returns 0, because the number of unacknowledged bytes is unknown.
func (s *Stream) Unconfirmed() int { return 0 }
