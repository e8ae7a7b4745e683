package zmtp

import (
	"fmt"
	"io"
)

// Package fmt prints unexported fields without calling their methods. So each type
// with a secret in such a field has its own Format method. Exported types have it
// on the value, so that copies are redacted as well as pointers.

// Format implements [fmt.Formatter]. It writes the name of the type without any
// keys for every verb.
func (m CurveClient) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.CurveClient") }

// Format implements [fmt.Formatter]. It writes the name of the type without any
// keys for every verb.
func (m CurveServer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.CurveServer") }

// Format implements [fmt.Formatter]. It writes the name of the type without the
// password for every verb.
func (m PlainClient) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.PlainClient") }

// Format implements [fmt.Formatter]. It writes the name of the type without the
// client's password for every verb.
func (m PlainServer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.PlainServer") }

// Format implements [fmt.Formatter]. It writes the mechanism without any keys
// for every verb.
func (h Handshake) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "zmtp.Handshake("+h.mechanism.Name()+")")
}

// Format implements [fmt.Formatter]. It writes the mechanism without Values,
// which may contain a password, for every verb.
func (c Credentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "zmtp.Credentials("+c.Mechanism+")")
}

// Format writes the mechanism without the keys of the connection for every
// verb.
func (c *curveCodec) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.Codec(CURVE)") }
