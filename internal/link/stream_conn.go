package link

import "net"

// connStream performs the input and output of a connection with its Read and Write
// methods. It is used for connections without a descriptor, and for all connections
// on systems without a stream_*.go file of their own.
type connStream struct {
	vectors net.Buffers // kept here, so that writing does not allocate
}

// receive implements Stream.Receive. It waits with a small buffer, and reads into
// src's buffers as long as each read fills its buffer.
func (*connStream) receive(conn net.Conn, src Source) error {
	small := make([]byte, smallRead)
	for {
		n, err := conn.Read(small)
		for p := small[:n]; len(p) > 0; {
			m := copy(src.Space(), p)
			if err := src.Received(m); err != nil {
				return err
			}
			p = p[m:]
		}
		for full := n == len(small); full && err == nil; {
			p := src.Space()
			if n, err = conn.Read(p); n > 0 {
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

// send implements Stream.Send. It writes in parts, so that Moved shows its progress.
func (c *connStream) send(s *Stream, bufs [][]byte) (written int64, err error) {
	if !s.Buffered() {
		// Not with net.Buffers: if a type embeds a *net.TCPConn, that would use
		// the method of the embedded connection instead of its Write.
		return s.sendEach(bufs)
	}
	for len(bufs) > 0 && err == nil {
		size, n := 0, 0
		for n < len(bufs) && size+len(bufs[n]) <= sendPart {
			size += len(bufs[n])
			n++
		}
		var m int64
		if n > 0 {
			c.vectors = bufs[:n]
			m, err = c.vectors.WriteTo(s.Conn)
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
	c.vectors = nil
	return written, err
}

// sendEach writes bufs one after another with the Write method of the connection.
func (s *Stream) sendEach(bufs [][]byte) (written int64, err error) {
	for _, b := range bufs {
		for len(b) > 0 {
			n, err := s.Conn.Write(b[:min(len(b), sendPart)])
			written += int64(n)
			s.Moved.Add(int64(n))
			if err != nil {
				return written, err
			}
			b = b[n:]
		}
	}
	return written, nil
}
