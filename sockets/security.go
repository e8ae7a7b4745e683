package sockets

import (
	"errors"
	"fmt"
	"io"

	"clustermap/zmtp"
)

// Security is how a socket and its peers prove to each other who they are. The
// zero value is the NULL mechanism: no authentication and no encryption. Of the
// others PLAIN sends a user name and a password in clear; CURVE proves the
// possession of keys and encrypts everything. Both sides must use the same
// mechanism, one of them as its server; which side binds does not matter.
//
// A ZAP handler (RFC 27) is a REP or ROUTER that the program binds to
// inproc://zeromq.zap.01, in the namespace of Options.Inproc. Where there is one and
// Authenticate is not set, it judges the peers of PLAIN and CURVE servers, and
// those of NULL with a ZAPDomain.
//
// None of this concerns inproc, where there is no handshake.
//
// Printing a Security shows neither secret key nor password.
type Security struct {
	// PlainServer makes the socket a server of PLAIN (ZMQ_PLAIN_SERVER). Its
	// clients are judged by Authenticate, or by a ZAP handler; without either
	// all are refused.
	PlainServer bool
	// PlainUsername and PlainPassword, each of at most 255 bytes, make the
	// socket a client of PLAIN.
	PlainUsername, PlainPassword string

	// CurveServer makes the socket a server of CURVE (ZMQ_CURVE_SERVER), known
	// to its clients by the public key that belongs to CurveSecretKey. Clients
	// are judged by Authenticate, or by a ZAP handler; without either,
	// everyone who knows that public key is let in.
	CurveServer bool
	// CurveSecretKey is the socket's own long-term key; clients need one too.
	// See zmtp.GenerateKeyPair and zmtp.ParseSecretKey.
	CurveSecretKey zmtp.SecretKey
	// CurvePublicKey belongs to CurveSecretKey. It may be left out; if it is
	// set, it is checked.
	CurvePublicKey zmtp.PublicKey
	// CurveServerKey makes the socket a client of CURVE: it is the public key
	// of the only server that the socket talks to.
	CurveServerKey zmtp.PublicKey

	// ZAPDomain, of at most 255 bytes, is what Authenticate and ZAP handlers
	// are told to judge the peer for. With NULL, a ZAP handler is asked only if
	// it is set.
	ZAPDomain string
	// ZAPEnforceDomain (ZMQ_ZAP_ENFORCE_DOMAIN) asks no ZAP handler while
	// ZAPDomain is empty, and lets nobody in without one while it is set.
	ZAPEnforceDomain bool

	// Authenticate, if set, judges peers, instead of a ZAP handler: the clients
	// of a PLAIN or CURVE server, and with NULL everyone.
	Authenticate Authenticator
}

// Validate reports all that is wrong with s, each fault an *OptionError. Sockets
// do so themselves when they are made.
func (s *Security) Validate() error {
	var errs []error
	o := Options{Security: *s}
	o.checkSecurity(func(field, format string, args ...any) {
		errs = append(errs, &OptionError{field, fmt.Sprintf(format, args...)})
	})
	return errors.Join(errs...)
}

// role is the part that a socket plays in a mechanism.
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

// String says which mechanism is used, in which role and with which public
// keys.
func (s Security) String() string {
	text := roleNames[s.role()]
	switch s.role() {
	case roleCurveClient:
		text += " " + s.publicKey().String() + " of " + s.CurveServerKey.String()
	case roleCurveServer:
		text += " " + s.publicKey().String()
	}
	return "Security(" + text + ")"
}

// Format prints what String returns, whatever the verb.
func (s Security) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

func (s *Security) publicKey() zmtp.PublicKey {
	if s.CurvePublicKey.IsZero() && !s.CurveSecretKey.IsZero() {
		return s.CurveSecretKey.Public()
	}
	return s.CurvePublicKey
}

// checkSecurity validates o.Security, and completes its keys.
func (o *Options) checkSecurity(bad func(field, format string, args ...any)) {
	s := &o.Security
	for _, f := range []struct{ name, value string }{
		{"PlainUsername", s.PlainUsername}, {"PlainPassword", s.PlainPassword}, {"ZAPDomain", s.ZAPDomain},
	} {
		if len(f.value) > 255 {
			bad("Security."+f.name, "has %d bytes; at most 255 are possible", len(f.value))
		}
	}
	if s.usesPlain() && s.usesCurve() {
		bad("Security", "is of PLAIN and of CURVE; choose one")
		return
	}
	switch {
	case s.PlainServer && (s.PlainUsername != "" || s.PlainPassword != ""):
		bad("Security.PlainServer", "excludes PlainUsername and PlainPassword, which are a client's")
	case s.PlainPassword != "" && s.PlainUsername == "":
		bad("Security.PlainUsername", "is missing beside PlainPassword")
	}
	if !s.usesCurve() {
		return
	}
	switch {
	case s.CurveSecretKey.IsZero():
		bad("Security.CurveSecretKey", "is missing; CURVE needs one on both sides")
	case s.CurvePublicKey.IsZero():
		s.CurvePublicKey = s.CurveSecretKey.Public()
	case s.CurvePublicKey != s.CurveSecretKey.Public():
		bad("Security.CurvePublicKey", "does not belong to CurveSecretKey")
	}
	switch {
	case s.CurveServer && !s.CurveServerKey.IsZero():
		bad("Security.CurveServer", "excludes CurveServerKey, which is for a client")
	case !s.CurveServer && s.CurveServerKey.IsZero():
		bad("Security.CurveServerKey", "is missing: the public key of the server, or CurveServer to be one")
	}
}

// mechanism returns the security mechanism of one connection, nil for NULL
// without anybody to ask.
func (s *socket) mechanism(c *zmtp.HandshakeConfig) zmtp.Mechanism {
	sec := s.security()
	keys := zmtp.KeyPair{Public: sec.CurvePublicKey, Secret: sec.CurveSecretKey}
	limits := zmtp.Limits{MaxMessage: c.Limits.MaxMessage}
	switch sec.role() {
	case rolePlainClient:
		return zmtp.NewPlainClient(c.AppendProperties(nil), sec.PlainUsername, sec.PlainPassword)
	case rolePlainServer:
		return zmtp.NewPlainServer(c.AppendProperties(nil))
	case roleCurveClient:
		return zmtp.NewCurveClient(zmtp.CurveClientConfig{
			Properties: c.AppendProperties(nil), Keys: keys, Server: sec.CurveServerKey, Limits: limits,
		})
	case roleCurveServer:
		return zmtp.NewCurveServer(zmtp.CurveServerConfig{
			Properties: c.AppendProperties(nil), Keys: keys, Limits: limits, CookieLifetime: s.cookieLifetime,
		})
	}
	if sec.Authenticate == nil && sec.ZAPDomain == "" {
		return nil
	}
	return zmtp.NewNullJudged(c.AppendProperties(nil))
}
