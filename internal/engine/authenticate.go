package engine

import (
	"context"
	"fmt"
	"net"
	"time"

	"clustermap/internal/bounds"
	"clustermap/internal/link"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// authenticate authenticates the peer of a handshake whose credentials are waiting. in
// holds the bytes received but not used yet. authenticate returns in with the bytes
// received in the meantime, the bytes to send, and whether the handshake is done.
func (s *Socket) authenticate(c *conn, h *zmtp.Handshake, in, dst []byte, deadline time.Time) (rest, out []byte, done bool, err error) {
	credentials, _ := h.Credentials()
	rest, v, err := s.ask(c, credentials, in, deadline)
	switch {
	case err != nil:
		return rest, dst, false, err
	case v.Status == zmtp.StatusAccepted:
		out, done, err = h.Accept(dst, v.UserID, v.Metadata)
		return rest, out, done, err
	}
	out, err = h.Deny(dst, v.Status)
	return rest, out, false, fmt.Errorf("%w: %w", err, v.Err)
}

// ask asks Security.Authenticate and returns its verdict. If err is not nil, there is no
// verdict. in and rest are as in authenticate.
func (s *Socket) ask(c *conn, credentials zmtp.Credentials, in []byte, deadline time.Time) (rest []byte, v Verdict, err error) {
	address, _, _ := net.SplitHostPort(link.RemoteText(c.stream.Conn))
	ask, err := c.config.Security.Authenticate(credentials, address)
	switch {
	case err != nil:
		return in, Verdict{}, err
	case ask == nil:
		return in, Verdict{Status: zmtp.StatusAccepted}, nil
	}
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	// The current deadline may be that of the peer's last command, which is
	// earlier. Once the goroutine runs, only wake may set the deadline.
	if err := c.setReadDeadline(deadline); err != nil {
		return in, Verdict{}, err
	}
	var verdict Verdict // valid once done is closed
	done := make(chan struct{})
	s.wg.Go(func() {
		if !s.admission.BeginCall(ctx.Done()) {
			return // attend ends by the same deadline, or with the connection
		}
		verdict = ask(ctx)
		s.admission.EndCall()
		c.wake(done)
	})
	s.admission.WaitsForUs(&c.guest)
	// A correct peer sends at most its next command now.
	rest, err = c.attend(in, MaxHandshakeCommand+handshakeBuffer, done)
	switch {
	case err != nil:
		return rest, Verdict{}, err
	case s.ctx.Err() != nil:
		return rest, Verdict{}, queue.ErrClosed
	case ctx.Err() != nil:
		return rest, Verdict{}, bounds.ErrHandshakeTimeout
	case verdict.Status == "":
		return rest, Verdict{}, verdict.Err
	}
	return rest, verdict, nil
}

// attend reads from the peer and appends to in until wake closes done, so that
// the end of the connection is noticed at once. It returns an error if the
// connection ends, or if in becomes longer than most bytes.
func (c *conn) attend(in []byte, most int, done <-chan struct{}) ([]byte, error) {
	part := make([]byte, handshakeBuffer)
	for {
		n, err := c.stream.Conn.Read(part)
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

// wake closes done and ends the read of attend. It does both under the mutex,
// so that it does not overwrite a read deadline that is set after done was
// closed.
func (c *conn) wake(done chan<- struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(done)
	if !c.closed {
		_ = c.stream.Conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection, which does not need it
	}
}

// farewell gives the peer time to read the ERROR. If unread bytes of the peer
// have arrived, closing at once would cause a reset, which destroys the ERROR.
// farewell returns when the peer closes the connection, as it should.
func (c *conn) farewell() {
	cw, ok := c.stream.Conn.(interface{ CloseWrite() error })
	if !ok || c.setReadDeadline(time.Now().Add(halfCloseWait)) != nil || cw.CloseWrite() != nil {
		return
	}
	part := make([]byte, handshakeBuffer)
	for read := 0; read < farewellBytes; {
		n, err := c.stream.Conn.Read(part)
		if read += n; err != nil {
			return
		}
	}
}

// farewellBytes is the maximum number of bytes read from a refused peer.
const farewellBytes = 64 << 10
