package zmtp

import (
	"errors"
	"strconv"
)

// Conditions to test for with errors.Is. All of them end the connection.
var (
	// ErrMalformed: bytes that no correct peer sends.
	ErrMalformed = errors.New("zmtp: malformed")
	// ErrTooLarge: a limit of [Limits] was exceeded.
	ErrTooLarge = errors.New("zmtp: too large")
	// ErrVersion: the peer speaks a ZMTP older than 3.0, or no ZMTP at all.
	ErrVersion = errors.New("zmtp: unsupported version")
	// ErrMechanism: the peer's greeting names another security mechanism.
	// A retry does not help while both are configured as they are.
	ErrMechanism = errors.New("zmtp: security mechanism mismatch")
	// ErrIncompatible: the peer's socket type cannot talk to ours.
	ErrIncompatible = errors.New("zmtp: incompatible socket type")
	// ErrRefused: the peer sent ERROR. It must not be tried again with the
	// same credentials (RFC 37, Error Handling).
	ErrRefused = errors.New("zmtp: refused by the peer")
	// ErrDenied: we refused the peer's credentials ([Handshake.Deny]); Reason
	// is the status code.
	ErrDenied = errors.New("zmtp: credentials denied")
	// ErrCryptographic: what the peer sent is not authentic: a box does not
	// open under the keys agreed, or was sent before. Either the keys are
	// not those the peer has, or somebody tampered with the connection.
	ErrCryptographic = errors.New("zmtp: cryptographic error")
	// ErrAbandoned: the caller gave up the handshake ([Handshake.Abandon]).
	ErrAbandoned = errors.New("zmtp: handshake abandoned")
	// ErrConfig: our own HandshakeConfig is not valid.
	ErrConfig = errors.New("zmtp: invalid configuration")
)

// ProtocolError tells how a peer broke the protocol, or refused us. Err is one
// of the package's conditions, so errors.Is(err, ErrMalformed) and the like
// work on it.
type ProtocolError struct {
	// Op is the stage: "greeting", "handshake", "command", "metadata" or
	// "decode".
	Op string
	// Reason is a short text. With ErrRefused it is the reason that the
	// peer gave, any bytes; Error quotes it.
	Reason string
	// Err is the condition.
	Err error
}

// Error returns the condition, the stage and the reason.
func (e *ProtocolError) Error() string {
	text := "zmtp: error"
	if e.Err != nil {
		text = e.Err.Error()
	}
	text += " (" + e.Op + ")"
	if e.Reason == "" {
		return text
	}
	if e.Err == ErrRefused {
		return text + ": " + strconv.Quote(e.Reason)
	}
	return text + ": " + e.Reason
}

// Unwrap returns the condition.
func (e *ProtocolError) Unwrap() error { return e.Err }

// malformed, tooLarge: the two errors most functions return.
func malformed(op, reason string) error {
	return &ProtocolError{Op: op, Reason: reason, Err: ErrMalformed}
}

func tooLarge(op, reason string) error {
	return &ProtocolError{Op: op, Reason: reason, Err: ErrTooLarge}
}
