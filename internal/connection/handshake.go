package connection

import (
	"time"

	"clustermap/zmtp"
)

// What a handshake needs while the socket decides about the peer.

// Attend reads from the peer and appends to in until EndAttend closes done, so that
// the end of the connection is noticed at once. It returns an error if the
// connection ends, or if in becomes longer than most bytes.
func (c *Conn) Attend(in []byte, most int, done <-chan struct{}) ([]byte, error) {
	part := make([]byte, HandshakeBuffer)
	for {
		n, err := c.Stream.Conn.Read(part)
		in = append(in, part[:n]...)
		select {
		case <-done:
			return in, nil
		default:
		}
		switch {
		case len(in) > most:
			return in, &zmtp.ProtocolError{Op: "handshake", Reason: "peer sent more than one command too early", Err: zmtp.ErrTooLarge}
		case err != nil:
			return in, err
		}
	}
}

// EndAttend closes done and ends the read of Attend. It does both under the mutex,
// so that it does not overwrite a read deadline that is set after done was
// closed.
func (c *Conn) EndAttend(done chan<- struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(done)
	c.Interrupt()
}

// Farewell gives the peer time to read the ERROR. If unread bytes of the peer
// have arrived, closing at once would cause a reset, which destroys the ERROR.
// Farewell returns when the peer closes the connection, as it should.
func (c *Conn) Farewell() {
	cw, ok := c.Stream.Conn.(interface{ CloseWrite() error })
	if !ok || c.SetReadDeadline(time.Now().Add(halfCloseWait)) != nil || cw.CloseWrite() != nil {
		return
	}
	part := make([]byte, HandshakeBuffer)
	for read := 0; read < farewellBytes; {
		n, err := c.Stream.Conn.Read(part)
		if read += n; err != nil {
			return
		}
	}
}
