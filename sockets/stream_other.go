//go:build !linux

package sockets

import "net"

// platformStream has nothing to keep where net.Conn does the work.
type platformStream struct{}

func (s *stream) init(conn net.Conn) error {
	s.conn = conn
	return nil
}

// receive feeds src until the connection ends, and returns why.
func (s *stream) receive(src source) error {
	for {
		n, err := s.conn.Read(src.space())
		if n > 0 {
			if err := src.received(n); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// send writes bufs wholly and returns how many octets were written. It may
// change the slice of slices.
func (s *stream) send(bufs [][]byte) (int64, error) {
	vectors := net.Buffers(bufs)
	return vectors.WriteTo(s.conn)
}
