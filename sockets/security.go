package sockets

import (
	"fmt"
	"io"
	"slices"
	"time"

	"clustermap/internal/option"
	"clustermap/zmtp"
)

// Security configures how a socket and its peers authenticate each other. The
// zero value selects the NULL mechanism: no authentication and no encryption.
// PLAIN sends a user name and a password in clear text (RFC 24). CURVE
// authenticates both sides by their keys and encrypts all traffic (RFC 25 and
// 26). Both sides must use the same mechanism, one of them as server; it does
// not matter which side binds.
//
// A server can decide which clients to accept, either with Authenticate or with
// a ZAP handler (RFC 27). A ZAP handler is a REP or ROUTER socket that the
// program binds to inproc://zeromq.zap.01 in the namespace of [Options.Inproc].
// It is used if Authenticate is not set, for the clients of PLAIN and CURVE
// servers, and for the peers of NULL sockets with a ZAPDomain.
//
// Security does not apply to inproc, which has no handshake.
//
// Formatting a Security with package fmt shows no secret keys and no passwords.
type Security struct {
	// PlainServer makes the socket a PLAIN server (ZMQ_PLAIN_SERVER).
	// Authenticate or a ZAP handler checks the credentials of its clients;
	// without either, all clients are refused.
	PlainServer bool
	// PlainUsername and PlainPassword, of at most 255 bytes each, make the
	// socket a PLAIN client with these credentials.
	PlainUsername, PlainPassword string

	// CurveServer makes the socket a CURVE server (ZMQ_CURVE_SERVER). Clients
	// must know the public key that belongs to CurveSecretKey. Authenticate or
	// a ZAP handler decides which clients to accept; without either, all
	// clients that know the public key are accepted.
	CurveServer bool
	// CurveSecretKey is the long-term secret key of the socket. CURVE servers
	// and clients both need one. See zmtp.GenerateKeyPair and
	// zmtp.ParseSecretKey.
	CurveSecretKey zmtp.SecretKey
	// CurveMoreKeys are other secret keys of a CURVE server: clients may know the public
	// key of any of them. So a server gets another key while it serves: see
	// docs/ACCESS.md.
	CurveMoreKeys []zmtp.SecretKey
	// CurvePublicKey is the public key that belongs to CurveSecretKey. It may
	// be left out. If it is set and does not belong to CurveSecretKey, the
	// options are invalid.
	CurvePublicKey zmtp.PublicKey
	// CurveServerKey makes the socket a CURVE client. It is the public key of
	// the server; the socket refuses servers with another key.
	CurveServerKey zmtp.PublicKey
	// CurveMoreServerKeys are other public keys that the server of a CURVE client may have, such
	// as the one that it will have. A client has to know the key before the server says
	// anything, so it tries one after the other: first the one that was right last, in the
	// beginning CurveServerKey, and if the server cannot read that, at once the next one, over
	// another connection. Only when all were wrong, the handshake has failed, with ErrServerKey,
	// and the socket waits as usual before it tries again.
	CurveMoreServerKeys []zmtp.PublicKey

	// ZAPDomain, of at most 255 bytes, is passed to Authenticate and to ZAP
	// handlers. With NULL, a ZAP handler is used only if ZAPDomain is set.
	ZAPDomain string
	// ZAPEnforceDomain (ZMQ_ZAP_ENFORCE_DOMAIN) makes a CURVE server use no ZAP
	// handler if ZAPDomain is empty. If ZAPDomain is set and there is neither
	// Authenticate nor a ZAP handler, it makes the socket refuse all peers. Without it,
	// a socket that would ask a ZAP handler accepts all peers as long as no handler has
	// been bound in its namespace (Options.Inproc), and refuses them after the handler has
	// ended, until another one is bound.
	ZAPEnforceDomain bool

	// Authenticate, if not nil, decides which peers are accepted: the clients
	// of a PLAIN or CURVE server, and with NULL all peers. It is used instead
	// of a ZAP handler.
	Authenticate Authenticator
}

// Validate reports all invalid fields of s, joined by [errors.Join], each as an
// [*OptionError]. The constructors of sockets call it.
func (s *Security) Validate() error {
	c := option.Checker{Package: "sockets"}
	o := Options{Security: *s}
	o.checkSecurity(c.Bad)
	return c.Err()
}

// role is the part that a socket plays in a security mechanism.
type role uint8

const (
	roleNull role = iota
	rolePlainClient
	rolePlainServer
	roleCurveClient
	roleCurveServer
)

var roleNames = [...]string{"NULL", "PLAIN client", "PLAIN server", "CURVE client", "CURVE server"}

func (s *Security) role() role {
	switch {
	case s.CurveServer:
		return roleCurveServer
	case s.usesCurve():
		return roleCurveClient
	case s.PlainServer:
		return rolePlainServer
	case s.usesPlain():
		return rolePlainClient
	}
	return roleNull
}

func (s *Security) usesPlain() bool {
	return s.PlainServer || s.PlainUsername != "" || s.PlainPassword != ""
}

func (s *Security) usesCurve() bool {
	return s.CurveServer || !s.CurveSecretKey.IsZero() || !s.CurvePublicKey.IsZero() || !s.CurveServerKey.IsZero()
}

// String returns the mechanism, the role and the public keys.
func (s Security) String() string {
	text := roleNames[s.role()]
	switch s.role() {
	case roleCurveClient:
		text += " " + s.publicKey().String() + " of " + s.CurveServerKey.String()
		for _, key := range s.CurveMoreServerKeys {
			text += " or " + key.String()
		}
	case roleCurveServer:
		text += " " + s.publicKey().String()
	}
	return "Security(" + text + ")"
}

// Format implements [fmt.Formatter]. It writes the result of String for every
// verb.
func (s Security) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

func (s *Security) publicKey() zmtp.PublicKey {
	if s.CurvePublicKey.IsZero() && !s.CurveSecretKey.IsZero() {
		return s.CurveSecretKey.Public()
	}
	return s.CurvePublicKey
}

// checkSecurity validates o.Security and fills in the public key.
func (o *Options) checkSecurity(bad func(field, format string, args ...any)) {
	s := &o.Security
	for _, f := range []struct{ name, value string }{
		{"PlainUsername", s.PlainUsername}, {"PlainPassword", s.PlainPassword}, {"ZAPDomain", s.ZAPDomain},
	} {
		if len(f.value) > 255 {
			bad("Security."+f.name, "has %d bytes; the maximum is 255", len(f.value))
		}
	}
	if s.usesPlain() && s.usesCurve() {
		bad("Security", "has fields for both PLAIN and CURVE")
		return
	}
	switch {
	case s.PlainServer && (s.PlainUsername != "" || s.PlainPassword != ""):
		bad("Security.PlainServer", "excludes PlainUsername and PlainPassword, which are for a client")
	case s.PlainPassword != "" && s.PlainUsername == "":
		bad("Security.PlainUsername", "is required with PlainPassword")
	}
	if len(s.CurveMoreKeys) > 0 && !s.CurveServer {
		bad("Security.CurveMoreKeys", "is for a CURVE server; a server sets CurveServer")
	}
	s.CurveMoreKeys = slices.Clone(s.CurveMoreKeys)
	for _, key := range s.CurveMoreKeys {
		if key.IsZero() {
			bad("Security.CurveMoreKeys", "has a key that is zero")
		}
	}
	if len(s.CurveMoreServerKeys) > 0 && s.CurveServerKey.IsZero() {
		bad("Security.CurveMoreServerKeys", "is for a CURVE client; a client sets CurveServerKey")
	}
	s.CurveMoreServerKeys = slices.Clone(s.CurveMoreServerKeys)
	for _, key := range s.CurveMoreServerKeys {
		if key.IsZero() {
			bad("Security.CurveMoreServerKeys", "has a key that is zero")
		}
	}
	if !s.usesCurve() {
		return
	}
	switch {
	case s.CurveSecretKey.IsZero():
		bad("Security.CurveSecretKey", "is required for CURVE clients and servers")
	case s.CurvePublicKey.IsZero():
		s.CurvePublicKey = s.CurveSecretKey.Public()
	case s.CurvePublicKey != s.CurveSecretKey.Public():
		bad("Security.CurvePublicKey", "does not belong to CurveSecretKey")
	}
	switch {
	case s.CurveServer && !s.CurveServerKey.IsZero():
		bad("Security.CurveServer", "excludes CurveServerKey, which is for a client")
	case !s.CurveServer && s.CurveServerKey.IsZero():
		bad("Security.CurveServerKey", "is required for a CURVE client; a server sets CurveServer")
	}
}

// moreKeys returns the key pairs of CurveMoreKeys.
func (sec *Security) moreKeys() (all []zmtp.KeyPair) {
	for _, key := range sec.CurveMoreKeys {
		all = append(all, zmtp.KeyPair{Public: key.Public(), Secret: key})
	}
	return all
}

// mechanism returns the security mechanism of a connection, or nil for NULL
// without an authenticator. A CURVE client takes the server to have CurveServerKey if key is 0, else that of
// CurveMoreServerKeys.
func (sec *Security) mechanism(c *zmtp.HandshakeConfig, cookies time.Duration, key int) zmtp.Mechanism {
	keys := zmtp.KeyPair{Public: sec.CurvePublicKey, Secret: sec.CurveSecretKey}
	limits := zmtp.Limits{MaxMessage: c.Limits.MaxMessage}
	switch sec.role() {
	case rolePlainClient:
		return zmtp.NewPlainClient(c.AppendProperties(nil), sec.PlainUsername, sec.PlainPassword)
	case rolePlainServer:
		return zmtp.NewPlainServer(c.AppendProperties(nil))
	case roleCurveClient:
		server := sec.CurveServerKey
		if key > 0 {
			server = sec.CurveMoreServerKeys[key-1]
		}
		return zmtp.NewCurveClient(zmtp.CurveClientConfig{
			Properties: c.AppendProperties(nil), Keys: keys, Server: server, Limits: limits,
		})
	case roleCurveServer:
		return zmtp.NewCurveServer(zmtp.CurveServerConfig{
			Properties: c.AppendProperties(nil), Keys: keys, More: sec.moreKeys(), Limits: limits, CookieLifetime: cookies,
		})
	}
	if sec.Authenticate == nil && sec.ZAPDomain == "" {
		return nil
	}
	return zmtp.NewNullAuth(c.AppendProperties(nil))
}
