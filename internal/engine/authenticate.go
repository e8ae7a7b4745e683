package engine

import (
	"context"
	"fmt"
	"net"
	"time"

	"clustermap/internal/bounds"
	"clustermap/internal/connection"
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
	address, _, _ := net.SplitHostPort(link.RemoteText(c.Stream.Conn))
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
	// earlier. Once the goroutine runs, only EndAttend may set the deadline.
	if err := c.SetReadDeadline(deadline); err != nil {
		return in, Verdict{}, err
	}
	var verdict Verdict // valid once done is closed
	done := make(chan struct{})
	s.wg.Go(func() {
		if !s.admission.BeginCall(ctx.Done()) {
			return // Attend ends by the same deadline, or with the connection
		}
		verdict = ask(ctx)
		s.admission.EndCall()
		c.EndAttend(done)
	})
	s.admission.WaitsForUs(&c.guest)
	// A correct peer sends at most its next command now.
	rest, err = c.Attend(in, MaxHandshakeCommand+connection.HandshakeBuffer, done)
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
