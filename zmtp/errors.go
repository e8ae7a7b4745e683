package zmtp

import (
	"errors"
	"strconv"
)

// Conditions for use with [errors.Is]. Each of them ends the connection.
var (
	// ErrMalformed means that the peer has sent invalid bytes, or that a text is
	// not valid Z85.
	ErrMalformed = errors.New("zmtp: malformed")
	// ErrTooLarge means that the peer has exceeded a limit of [Limits].
	ErrTooLarge = errors.New("zmtp: too large")
	// ErrVersion means that the peer speaks an older version of ZMTP than
	// accepted, or another protocol.
	ErrVersion = errors.New("zmtp: unsupported version")
	// ErrMechanism means that the peer uses another security mechanism. A new
	// attempt fails too unless one of the two is configured differently.
	ErrMechanism = errors.New("zmtp: security mechanism mismatch")
	// ErrIncompatible means that the peer's socket type is not compatible with
	// ours.
	ErrIncompatible = errors.New("zmtp: incompatible socket type")
	// ErrRefused means that the peer has sent ERROR. According to RFC 37,
	// section "Error Handling", a client must not try again with the same
	// credentials.
	ErrRefused = errors.New("zmtp: refused by the peer")
	// ErrDenied means that we have refused the peer's credentials with
	// [Handshake.Deny]. The Reason is the status code.
	ErrDenied = errors.New("zmtp: credentials denied")
	// ErrCryptographic means that bytes from the peer are not authentic: a box
	// does not open with the keys of the connection, or is a repetition. Either
	// the peer uses other keys, or the connection has been tampered with.
	ErrCryptographic = errors.New("zmtp: cryptographic error")
	// ErrAbandoned means that the caller has given up the handshake with
	// [Handshake.Abandon].
	ErrAbandoned = errors.New("zmtp: handshake abandoned")
	// ErrConfig means that our own configuration is invalid.
	ErrConfig = errors.New("zmtp: invalid configuration")
)

// ProtocolError describes how a peer has violated the protocol, or why one side
// has refused the other. It wraps one of the conditions of this package, such
// as ErrMalformed; use [errors.Is].
type ProtocolError struct {
	// Op is the operation that failed, such as "greeting", "handshake", "command",
	// "metadata", "encode" or "decode".
	Op string
	// Reason is a short description. With ErrRefused it is the reason that the
	// peer has sent, which may contain any bytes; Error quotes it.
	Reason string
	// Err is one of the conditions of this package.
	Err error
}

// Error returns the condition, Op and Reason, and what a status code in Reason means.
func (e *ProtocolError) Error() string {
	text := "zmtp: error"
	if e.Err != nil {
		text = e.Err.Error()
	}
	text += " (" + e.Op + ")"
	if e.Reason == "" {
		return text
	}
	reason := e.Reason
	if e.Err == ErrRefused {
		reason = strconv.Quote(reason)
	}
	return text + ": " + reason + statusMeanings[e.Status()]
}

// Unwrap returns Err.
func (e *ProtocolError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error.
func (e *ProtocolError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// malformed and tooLarge return the most common errors.
func malformed(op, reason string) error {
	return &ProtocolError{Op: op, Reason: reason, Err: ErrMalformed}
}

func tooLarge(op, reason string) error {
	return &ProtocolError{Op: op, Reason: reason, Err: ErrTooLarge}
}
