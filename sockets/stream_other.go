//go:build !linux || portable

package sockets

import "net"

// platformStream leaves the work to net.Conn. The tag "portable" chooses it on
// Linux too, for tests.
type platformStream struct {
	vectors net.Buffers // here, so that writing does not allocate
}

// bounded has nothing to do: how these systems size their buffers was not measured.
func (s *stream) bounded() {}

// canLend: reading cannot be left and gone on with.
const canLend = false

type receiving struct{ poll, spun bool }

func (*receiving) init(source, spin) {}

type spin struct{}

func newSpin(*Options) (s spin) { return s }

func (*stream) receiveFor(*receiving) error { return errNothing }

// attempt would write what the kernel takes at once.
type attempt struct{}

func newAttempt(*stream) *attempt { return nil }

func (*attempt) write([]byte) int { return 0 }

// smallRead is the buffer of a connection that waits.
const smallRead = 4 << 10

func (s *stream) init(conn net.Conn) error {
	s.conn = conn
	return nil
}

// receive feeds src until the connection ends, and returns why. It waits with a
// small buffer, and reads into src's own for as long as the buffers are filled.
func (s *stream) receive(src source) error {
	small := make([]byte, smallRead)
	for {
		n, err := s.conn.Read(small)
		for p := small[:n]; len(p) > 0; {
			m := copy(src.space(), p)
			if err := src.received(m); err != nil {
				return err
			}
			p = p[m:]
		}
		for full := n == len(small); full && err == nil; {
			p := src.space()
			if n, err = s.conn.Read(p); n > 0 {
				if err := src.received(n); err != nil {
					return err
				}
			}
			full = n == len(p)
		}
		if err != nil {
			return err
		}
		src.idle()
	}
}

// send writes bufs wholly and returns how many bytes were written. It may
// change the slice of slices. It writes in parts, so that moved shows its progress.
func (s *stream) send(bufs [][]byte) (written int64, err error) {
	for len(bufs) > 0 && err == nil {
		size, n := 0, 0
		for n < len(bufs) && size+len(bufs[n]) <= sendPart {
			size += len(bufs[n])
			n++
		}
		var m int64
		if n > 0 {
			s.vectors = bufs[:n]
			m, err = s.vectors.WriteTo(s.conn)
			bufs = bufs[n:]
		} else {
			var k int
			k, err = s.conn.Write(bufs[0][:sendPart])
			bufs[0] = bufs[0][k:]
			m = int64(k)
		}
		written += m
		s.moved.Add(m)
	}
	s.vectors = nil
	return written, err
}

// sendPart is the most that is written at once.
const sendPart = 128 << 10

// unconfirmed returns how many bytes were sent but not confirmed by the peer's
// system, which cannot be told here.
func (s *stream) unconfirmed() int { return 0 }
