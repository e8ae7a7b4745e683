package sockets

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"clustermap/zmtp"
)

// Errors for an [Authenticator] to return, also wrapped. Any other error says
// that the peer could not be judged (status 500): it is refused.
var (
	// ErrDenied refuses the peer's credentials (status 400). It is told, and
	// will not try again with them.
	ErrDenied = errors.New("sockets: credentials denied")
	// ErrTemporary refuses the peer for the moment (status 300). Its
	// connection ends without a word, and it will try again.
	ErrTemporary = errors.New("sockets: credentials cannot be judged now")
	// ErrNoAuthenticator is reported to the monitor when a peer has to be
	// judged and nobody is there to do so. Its connection ends without a word.
	ErrNoAuthenticator = errors.New("sockets: nobody judges credentials: neither Authenticate nor a ZAP handler")
)

// Authenticator judges a peer, in the middle of its handshake (RFC 27). With a
// nil error the peer is let in as the user returned; see ErrDenied for others.
//
// It is called in a goroutine of its own, with no lock held, in at most
// Options.MaxHandshakes goroutines at a time. It may block until ctx ends, which
// it does after Options.HandshakeTimeout, with the connection, or with the socket;
// the peer is given up then. A call that goes on after the end of ctx delays Close,
// and while MaxHandshakes such calls run, no other peer is judged or let in.
type Authenticator func(ctx context.Context, r AuthRequest) (User, error)

// AuthRequest is who asks to be let in.
type AuthRequest struct {
	Domain    string // Security.ZAPDomain
	Address   string // the peer's network address, without a port; empty over ipc
	Mechanism string // "NULL", "PLAIN" or "CURVE"
	// Identity is the routing id that the peer announced. It is empty with NULL
	// and PLAIN, where peers announce it only after they were let in.
	Identity string

	username, password string
	key                zmtp.PublicKey
}

// Username returns the user name that came with PLAIN.
func (r *AuthRequest) Username() string { return r.username }

// Password returns the password that came with PLAIN.
func (r *AuthRequest) Password() string { return r.password }

// PublicKey returns the key that the peer has proved to own, with CURVE.
func (r *AuthRequest) PublicKey() zmtp.PublicKey { return r.key }

// String describes the request without the password.
func (r AuthRequest) String() string {
	switch r.Mechanism {
	case "PLAIN":
		return fmt.Sprintf("PLAIN user %q at %s", r.username, r.Address)
	case "CURVE":
		return fmt.Sprintf("CURVE key %s at %s", r.key, r.Address)
	}
	return fmt.Sprintf("%s at %s", r.Mechanism, r.Address)
}

// Format prints what String returns, whatever the verb.
func (r AuthRequest) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(r.String())) }

// User is who was let in, for the application to see: [Peer.UserID] and
// [Peer.Property].
type User struct {
	ID       string
	Metadata map[string]string // further properties of the peer
}

// AllowKeys returns an Authenticator that lets in the owners of the given CURVE
// keys, with the key in Z85 as user id, and nobody else.
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

// AllowUsers returns an Authenticator that lets in who knows a user's password
// with PLAIN, with the name as user id, and nobody else. The keys of passwords
// are the names.
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

// judge has the credentials judged that a handshake waits for. in is what was
// received and not used yet; it returns that with what has come meanwhile, what to
// send, and whether the handshake is done.
func (s *socket) judge(c *conn, h *zmtp.Handshake, in, dst []byte, deadline time.Time) (rest, out []byte, done bool, err error) {
	credentials, _ := h.Credentials()
	rest, user, cause, err := s.authenticate(c, credentials, in, deadline)
	if err != nil {
		return rest, dst, false, err
	}
	status := zmtp.StatusFailed
	switch {
	case cause == nil:
		var granted zmtp.Metadata
		for _, name := range slices.Sorted(maps.Keys(user.Metadata)) {
			granted = append(granted, zmtp.Property{Name: name, Value: []byte(user.Metadata[name])})
		}
		out, done, err = h.Accept(dst, user.ID, granted)
		return rest, out, done, err
	case errors.Is(cause, ErrDenied):
		status = zmtp.StatusDenied
	case errors.Is(cause, ErrTemporary):
		status = zmtp.StatusTemporary
	}
	out, err = h.Deny(dst, status)
	return rest, out, false, fmt.Errorf("%w: %w", err, cause)
}

// authenticate asks whoever is there to ask, and returns the verdict: a user,
// or the cause to deny one. With err there is none. rest is as for judge.
func (s *socket) authenticate(c *conn, credentials zmtp.Credentials, in []byte, deadline time.Time) (rest []byte, user User, cause, err error) {
	sec := s.security()
	ask := sec.Authenticate
	if ask == nil {
		ask = s.zapHandler()
	}
	if ask == nil {
		if sec.role() == rolePlainServer || sec.ZAPEnforceDomain && sec.ZAPDomain != "" {
			return in, User{}, nil, ErrNoAuthenticator
		}
		return in, User{}, nil, nil
	}
	r := AuthRequest{Domain: sec.ZAPDomain, Mechanism: credentials.Mechanism, Identity: string(credentials.Identity)}
	r.Address, _, _ = net.SplitHostPort(c.stream.conn.RemoteAddr().String())
	switch sec.role() {
	case rolePlainServer:
		r.username, r.password = string(credentials.Values[0]), string(credentials.Values[1])
	case roleCurveServer:
		copy(r.key[:], credentials.Values[0])
	}
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	type verdict struct {
		user  User
		cause error
	}
	// The deadline that is set may be that of the peer's last command, which is
	// earlier. Once the goroutine runs, only rouse may set the deadline.
	if err := c.setReadDeadline(deadline); err != nil {
		return in, User{}, nil, err
	}
	var v verdict
	judged := make(chan verdict, 1)
	done := make(chan struct{})
	s.wg.Go(func() {
		select {
		case s.admission.judges <- struct{}{}:
		case <-ctx.Done():
			return // attend ends by the same deadline, or with the connection
		}
		user, cause := ask(ctx, r)
		<-s.admission.judges
		judged <- verdict{user, cause}
		c.rouse(done)
	})
	s.admission.judging(c)
	// An honest peer sends at most its next command now.
	rest, err = c.attend(in, maxHandshakeCommand+handshakeBuffer, done)
	if err == nil {
		v = <-judged
		err = c.setReadDeadline(deadline)
	}
	switch fault := (*ZAPError)(nil); {
	case err != nil:
		return rest, User{}, nil, err
	case s.ctx.Err() != nil:
		return rest, User{}, nil, ErrClosed
	case ctx.Err() != nil:
		return rest, User{}, nil, ErrHandshakeTimeout
	case errors.As(v.cause, &fault), errors.Is(v.cause, ErrNoAuthenticator):
		return rest, User{}, nil, v.cause
	}
	return rest, v.user, v.cause, nil
}

// attend reads from the peer and appends to in until rouse closes done, so that the
// end of the connection is noticed at once. It returns an error if the connection
// ends, or if in becomes longer than most bytes.
func (c *conn) attend(in []byte, most int, done <-chan struct{}) ([]byte, error) {
	part := make([]byte, handshakeBuffer)
	for {
		n, err := c.stream.conn.Read(part)
		in = append(in, part[:n]...)
		select {
		case <-done:
			return in, nil
		default:
		}
		switch {
		case len(in) > most:
			return in, &zmtp.ProtocolError{Op: "handshake", Reason: "more than a command before it was asked for", Err: zmtp.ErrTooLarge}
		case err != nil:
			return in, err
		}
	}
}

// rouse closes done and ends the read of attend. Both happen under the mutex, so
// that rouse does not overwrite a read deadline that is set after done was closed.
func (c *conn) rouse(done chan<- struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(done)
	if !c.closed {
		_ = c.stream.conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection, which needs none
	}
}

// farewell lets the peer read the ERROR that it was sent. To close at once
// would be a reset if the peer has sent more, and a reset destroys what it has
// not read. A peer that goes at once, as it should, is not waited for.
func (c *conn) farewell() {
	cw, ok := c.stream.conn.(interface{ CloseWrite() error })
	if !ok || c.setReadDeadline(time.Now().Add(halfCloseWait)) != nil || cw.CloseWrite() != nil {
		return
	}
	part := make([]byte, handshakeBuffer)
	for read := 0; read < farewellBytes; {
		n, err := c.stream.conn.Read(part)
		if read += n; err != nil {
			return
		}
	}
}

// farewellBytes is how much of what a refused peer still sends is read.
const farewellBytes = 64 << 10
