package sockets

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	"clustermap/internal/link"
	"clustermap/zmtp"
)

// Errors with which an [Authenticator] refuses a peer. It may wrap them. Any
// other error means that the peer could not be authenticated (status 500); the
// peer is refused.
var (
	// ErrDenied rejects the peer's credentials (status 400). The peer receives
	// the status. A libzmq peer does not connect again; a peer that uses this
	// package does, after its Options.ReconnectIntervalMax.
	ErrDenied = errors.New("sockets: credentials denied")
	// ErrTemporary refuses the peer for now (status 300). The connection is
	// closed without sending an ERROR, and the peer connects again.
	ErrTemporary = errors.New("sockets: authentication temporarily unavailable")
	// ErrNoAuthenticator is reported to the monitor if a peer must be
	// authenticated but there is neither an Authenticator nor a ZAP handler, or
	// the handler has ended.
	// The peer's connection is closed without sending an ERROR.
	ErrNoAuthenticator = errors.New("sockets: neither Authenticate nor a ZAP handler to check credentials")
)

// Authenticator decides whether a peer is accepted. It is called during the
// peer's handshake (RFC 27). If the error is nil, the peer is accepted as the
// returned User; otherwise it is refused. See ErrDenied and ErrTemporary.
//
// Each call runs in its own goroutine, with no locks held; at most
// Options.MaxHandshakes calls run at the same time. A call may block until ctx
// is done, which happens after Options.HandshakeTimeout, or when the connection
// or the socket is closed; the peer is then refused. A call that continues
// after that delays Close, and counts towards Options.MaxHandshakes.
type Authenticator func(ctx context.Context, r AuthRequest) (User, error)

// AuthRequest describes a peer to be authenticated.
type AuthRequest struct {
	Domain    string // Security.ZAPDomain
	Address   string // the peer's network address, without a port; empty over ipc
	Mechanism string // "NULL", "PLAIN" or "CURVE"
	// Identity is the identity that the peer announced. It is empty with NULL
	// and PLAIN, where peers announce it only after they have been accepted.
	Identity string

	username, password string
	key                zmtp.PublicKey
}

// Username returns the user name that the peer has sent with PLAIN.
func (r *AuthRequest) Username() string { return r.username }

// Password returns the password that the peer has sent with PLAIN.
func (r *AuthRequest) Password() string { return r.password }

// PublicKey returns the public key that the peer has proved to own with CURVE.
func (r *AuthRequest) PublicKey() zmtp.PublicKey { return r.key }

// String returns a description of the request without the password.
func (r AuthRequest) String() string {
	switch r.Mechanism {
	case "PLAIN":
		return fmt.Sprintf("PLAIN user %q at %s", r.username, r.Address)
	case "CURVE":
		return fmt.Sprintf("CURVE key %s at %s", r.key, r.Address)
	}
	return fmt.Sprintf("%s at %s", r.Mechanism, r.Address)
}

// Format implements [fmt.Formatter]. It writes the result of String for every
// verb.
func (r AuthRequest) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(r.String())) }

// DeniedError says which peer an [Authenticator] or ZAP handler has refused, and why. The
// Err of EventHandshakeFailed wraps it.
type DeniedError struct {
	Request AuthRequest
	Err     error // the verdict, such as ErrDenied
}

// Error returns the verdict and the peer with its public key or user name.
func (e *DeniedError) Error() string { return e.Err.Error() + ": " + e.Request.String() }

// Unwrap returns Err.
func (e *DeniedError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error.
func (e *DeniedError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// User describes an accepted peer. The application can read it with
// [Peer.UserID] and [Peer.Property].
type User struct {
	ID       string            // user ID
	Metadata map[string]string // additional properties of the peer; see Peer.Property
}

// AllowKeys returns an Authenticator that accepts only CURVE clients with the
// given public keys. The user ID is the key in Z85 form.
func AllowKeys(keys ...zmtp.PublicKey) Authenticator {
	allowed := make(map[zmtp.PublicKey]bool, len(keys))
	for _, k := range keys {
		allowed[k] = true
	}
	return func(_ context.Context, r AuthRequest) (User, error) {
		if r.Mechanism != "CURVE" || !allowed[r.key] {
			return User{}, ErrDenied
		}
		return User{ID: r.key.String()}, nil
	}
}

// AllowUsers returns an Authenticator that accepts only PLAIN clients with the
// given user names and passwords. The keys of the map are the user names. The
// user ID is the user name. AllowUsers copies the map.
func AllowUsers(passwords map[string]string) Authenticator {
	passwords = maps.Clone(passwords)
	return func(_ context.Context, r AuthRequest) (User, error) {
		want, known := passwords[r.username]
		same := subtle.ConstantTimeCompare([]byte(want), []byte(r.password)) == 1
		if r.Mechanism != "PLAIN" || !known || !same {
			return User{}, ErrDenied
		}
		return User{ID: r.username}, nil
	}
}

// judge authenticates the peer of a handshake whose credentials are waiting. in
// holds the bytes received but not used yet. judge returns in with the bytes
// received in the meantime, the bytes to send, and whether the handshake is done.
func (s *socket) judge(c *conn, h *zmtp.Handshake, in, dst []byte, deadline time.Time) (rest, out []byte, done bool, err error) {
	credentials, _ := h.Credentials()
	request := c.request(credentials)
	rest, user, cause, err := s.authenticate(c, request, in, deadline)
	if err != nil {
		return rest, dst, false, err
	}
	status := zmtp.StatusFailed
	switch {
	case cause == nil:
		out, done, err = h.Accept(dst, user.ID, properties(user.Metadata))
		return rest, out, done, err
	case errors.Is(cause, ErrDenied):
		status = zmtp.StatusDenied
	case errors.Is(cause, ErrTemporary):
		status = zmtp.StatusTemporary
	}
	out, err = h.Deny(dst, status)
	return rest, out, false, fmt.Errorf("%w: %w", err, &DeniedError{request, cause})
}

// request returns what an Authenticator is told about a peer.
func (c *conn) request(credentials zmtp.Credentials) AuthRequest {
	sec := &c.opts.Security
	r := AuthRequest{Domain: sec.ZAPDomain, Mechanism: credentials.Mechanism, Identity: string(credentials.Identity)}
	r.Address, _, _ = net.SplitHostPort(link.RemoteText(c.stream.Conn))
	switch sec.role() {
	case rolePlainServer:
		r.username, r.password = string(credentials.Values[0]), string(credentials.Values[1])
	case roleCurveServer:
		copy(r.key[:], credentials.Values[0])
	}
	return r
}

// authenticate asks the Authenticator or ZAP handler and returns its verdict: a
// user, or the cause to refuse the peer. If err is not nil, there is no
// verdict. in and rest are as in judge.
func (s *socket) authenticate(c *conn, r AuthRequest, in []byte, deadline time.Time) (rest []byte, user User, cause, err error) {
	sec := &c.opts.Security
	ask := sec.Authenticate
	if ask == nil {
		ask = s.zapHandler(sec)
	}
	if ask == nil {
		if sec.role() == rolePlainServer || sec.ZAPEnforceDomain && sec.ZAPDomain != "" {
			return in, User{}, nil, ErrNoAuthenticator
		}
		return in, User{}, nil, nil
	}
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	// The current deadline may be that of the peer's last command, which is
	// earlier. Once the goroutine runs, only rouse may set the deadline.
	if err := c.setReadDeadline(deadline); err != nil {
		return in, User{}, nil, err
	}
	var granted User
	var verdict error // valid, as granted is, once done is closed
	done := make(chan struct{})
	s.wg.Go(func() {
		if !s.admission.beginCall(ctx.Done()) {
			return // attend ends by the same deadline, or with the connection
		}
		granted, verdict = ask(ctx, r)
		s.admission.endCall()
		c.rouse(done)
	})
	s.admission.judging(c)
	// A correct peer sends at most its next command now.
	rest, err = c.attend(in, maxHandshakeCommand+handshakeBuffer, done)
	switch fault := (*ZAPError)(nil); {
	case err != nil:
		return rest, User{}, nil, err
	case s.ctx.Err() != nil:
		return rest, User{}, nil, ErrClosed
	case ctx.Err() != nil:
		return rest, User{}, nil, ErrHandshakeTimeout
	case errors.As(verdict, &fault), errors.Is(verdict, ErrNoAuthenticator):
		return rest, User{}, nil, verdict
	}
	return rest, granted, verdict, nil
}

// attend reads from the peer and appends to in until rouse closes done, so that
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

// rouse closes done and ends the read of attend. It does both under the mutex,
// so that it does not overwrite a read deadline that is set after done was
// closed.
func (c *conn) rouse(done chan<- struct{}) {
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
