//go:build !linux || portable

package link

import (
	"net"
	"time"
)

// platformStream leaves the work to net.Conn. The tag "portable" chooses it on
// Linux too, for tests.
type platformStream struct{ connStream }

// BoundSendBuffer does nothing: how these systems size their buffers was not measured.
func (s *Stream) BoundSendBuffer() {}

// CanReceiveFor says that reading cannot be left and gone on with.
func (s *Stream) CanReceiveFor() bool { return false }

// Receiving would feed a source by ReceiveFor.
type Receiving struct{ Poll, Spun bool }

// Init does nothing.
func (*Receiving) Init(Source, Spin) {}

// Spin would look again before sleeping.
type Spin struct{}

// NewSpin returns one that never looks.
func NewSpin(time.Duration) (s Spin) { return s }

// ReceiveFor is not called.
func (*Stream) ReceiveFor(*Receiving) error { return ErrNothing }

// Attempt would write what the kernel takes at once.
type Attempt struct{}

// NewAttempt returns nil: it cannot be done here.
func NewAttempt(*Stream) *Attempt { return nil }

// Write is not called.
func (*Attempt) Write([]byte) int { return 0 }

// Init takes over a connection.
func (s *Stream) Init(conn net.Conn) error {
	s.Conn = conn
	return nil
}

// Receive feeds src until the connection ends or src ends it, and returns why.
func (s *Stream) Receive(src Source) error { return s.receive(s.Conn, src) }

// Send writes bufs wholly and returns how many bytes were written. It may
// change the slice of slices.
func (s *Stream) Send(bufs [][]byte) (int64, error) { return s.send(s, bufs) }

// Unconfirmed returns how many bytes were sent but not confirmed by the peer's
// system, which cannot be told here.
func (s *Stream) Unconfirmed() int { return 0 }
