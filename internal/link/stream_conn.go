package link

import "net"

// connStream does the input and output of a connection by its Read and Write: of one
// that has no descriptor of its own, and of all on systems without a stream of
// their own.
type connStream struct {
	vectors net.Buffers // here, so that writing does not allocate
}

// smallRead is the buffer of a connection that waits.
const smallRead = 4 << 10

// receive is Stream.Receive. It waits with a small buffer, and reads into src's own
// for as long as the buffers are filled.
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

// send is Stream.Send. It writes in parts, so that Moved shows its progress.
func (c *connStream) send(s *Stream, bufs [][]byte) (written int64, err error) {
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

// sendPart is the most that is written at once.
const sendPart = 128 << 10
