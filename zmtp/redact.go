package zmtp

import (
	"fmt"
	"io"
)

// Package fmt prints unexported fields without calling their methods, so a type that
// holds a secret in such a field has a Format method itself. Exported types have
// it on the value, so that a copy is redacted as well as a pointer.

// Format prints the mechanism and nothing of its keys, whatever the verb.
func (m CurveClient) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.CurveClient") }

// Format prints the mechanism and nothing of its keys, whatever the verb.
func (m CurveServer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.CurveServer") }

// Format prints the mechanism and not the password, whatever the verb.
func (m PlainClient) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.PlainClient") }

// Format prints the mechanism and not the client's password, whatever the verb.
func (m PlainServer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.PlainServer") }

// Format prints the mechanism and nothing of its keys, whatever the verb.
func (h Handshake) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "zmtp.Handshake("+h.mechanism.Name()+")")
}

// Format prints the mechanism and not the values, whatever the verb: those of
// PLAIN have the password.
func (c Credentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "zmtp.Credentials("+c.Mechanism+")")
}

// Format prints nothing of the connection's keys, whatever the verb.
func (c *curveCodec) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zmtp.Codec(CURVE)") }
