package sockets

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"

	"clustermap/internal/engine"
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
	ErrTemporary = engine.ErrTemporary
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

// authenticate returns what decides about a client; see engine.Security.
func (s *socket) authenticate(sec *Security, c zmtp.Credentials, address string) (func(context.Context) engine.Verdict, error) {
	ask := s.authenticator(sec)
	if ask == nil {
		if sec.role() == rolePlainServer || sec.ZAPEnforceDomain && sec.ZAPDomain != "" {
			return nil, ErrNoAuthenticator
		}
		return nil, nil
	}
	r := AuthRequest{Domain: sec.ZAPDomain, Address: address, Mechanism: c.Mechanism, Identity: string(c.Identity)}
	switch sec.role() {
	case rolePlainServer:
		r.username, r.password = string(c.Values[0]), string(c.Values[1])
	case roleCurveServer:
		copy(r.key[:], c.Values[0])
	}
	return func(ctx context.Context) engine.Verdict {
		user, err := ask(ctx, r)
		var fault *ZAPError
		v := engine.Verdict{Status: zmtp.StatusFailed, Err: &DeniedError{r, err}}
		switch {
		case err == nil:
			return engine.Verdict{Status: zmtp.StatusAccepted, UserID: user.ID, Metadata: properties(user.Metadata)}
		case errors.As(err, &fault), errors.Is(err, ErrNoAuthenticator):
			return engine.Verdict{Err: err}
		case errors.Is(err, ErrDenied):
			v.Status = zmtp.StatusDenied
		case errors.Is(err, ErrTemporary):
			v.Status = zmtp.StatusTemporary
		}
		return v
	}, nil
}

// authenticator returns what decides about clients now; nil if all are accepted.
func (s *socket) authenticator(sec *Security) Authenticator {
	if sec.Authenticate != nil {
		return sec.Authenticate
	}
	return s.zapHandler(sec)
}
