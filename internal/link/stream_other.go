//go:build !linux || portable

package link

import (
	"net"
	"time"
)

// platformStream leaves the work to net.Conn. The tag "portable" chooses it on
// Linux too, for tests.
type platformStream struct {
	vectors net.Buffers // here, so that writing does not allocate
}

// BoundSendBuffer does nothing: how these systems size their buffers was not measured.
func (s *Stream) BoundSendBuffer() {}

// CanReceiveFor says that reading cannot be left and gone on with.
const CanReceiveFor = false

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

// smallRead is the buffer of a connection that waits.
const smallRead = 4 << 10

// Init takes over a connection.
func (s *Stream) Init(conn net.Conn) error {
	s.Conn = conn
	return nil
}

// Receive feeds src until the connection ends or src ends it, and returns why. It waits with a
// small buffer, and reads into src's own for as long as the buffers are filled.
func (s *Stream) Receive(src Source) error {
	small := make([]byte, smallRead)
	for {
		n, err := s.Conn.Read(small)
		for p := small[:n]; len(p) > 0; {
			m := copy(src.Space(), p)
			if err := src.Received(m); err != nil {
				return err
			}
			p = p[m:]
		}
		for full := n == len(small); full && err == nil; {
			p := src.Space()
			if n, err = s.Conn.Read(p); n > 0 {
				if err := src.Received(n); err != nil {
					return err
				}
			}
			full = n == len(p)
		}
		if err != nil {
			return err
		}
		src.Idle()
	}
}

// Send writes bufs wholly and returns how many bytes were written. It may
// change the slice of slices. It writes in parts, so that Moved shows its progress.
func (s *Stream) Send(bufs [][]byte) (written int64, err error) {
	for len(bufs) > 0 && err == nil {
		size, n := 0, 0
		for n < len(bufs) && size+len(bufs[n]) <= sendPart {
			size += len(bufs[n])
			n++
		}
		var m int64
		if n > 0 {
			s.vectors = bufs[:n]
			m, err = s.vectors.WriteTo(s.Conn)
			bufs = bufs[n:]
		} else {
			var k int
			k, err = s.Conn.Write(bufs[0][:sendPart])
			bufs[0] = bufs[0][k:]
			m = int64(k)
		}
		written += m
		s.Moved.Add(m)
	}
	s.vectors = nil
	return written, err
}

// sendPart is the most that is written at once.
const sendPart = 128 << 10

// Unconfirmed returns how many bytes were sent but not confirmed by the peer's
// system, which cannot be told here.
func (s *Stream) Unconfirmed() int { return 0 }
