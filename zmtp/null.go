package zmtp

import "bytes"

const nullName = "NULL"

// Null is the NULL mechanism: no authentication and no encryption (RFC 37,
// section "The NULL Security Mechanism"). As in RFC 23 and libzmq, each side
// sends READY with its properties immediately, and is done when it has received
// that of the other.
type Null struct {
	exchange
	properties []byte
	waiting    bool // Accept has not been called yet
}

var _ AuthMechanism = (*Null)(nil)

// NewNull returns a NULL mechanism that announces the given properties, as
// encoded by [HandshakeConfig.AppendProperties]. It keeps the slice.
func NewNull(properties []byte) *Null {
	return &Null{exchange: exchange{want: CommandReady}, properties: properties}
}

// NewNullAuth is like NewNull, but after the greetings, and before it sends
// READY, the handshake waits until the caller accepts or denies the peer. There
// are no credentials; a caller can decide by the peer's network address, as ZAP
// handlers do.
func NewNullAuth(properties []byte) *Null {
	m := NewNull(properties)
	m.waiting = true
	return m
}

// Name returns "NULL".
func (m *Null) Name() string { return nullName }

// Start appends READY, unless the peer must be accepted first.
func (m *Null) Start(dst []byte) ([]byte, error) {
	if m.waiting {
		return dst, nil
	}
	return AppendCommand(dst, CommandReady, m.properties), nil
}

// Credentials returns no values, and whether the mechanism is waiting for
// Accept or Refuse.
func (m *Null) Credentials() (values [][]byte, waiting bool) { return nil, m.waiting }

// Accept appends READY.
func (m *Null) Accept(dst []byte) (out []byte, done bool, err error) {
	m.waiting = false
	return AppendCommand(dst, CommandReady, m.properties), false, nil
}

// Refuse appends ERROR.
func (m *Null) Refuse(dst []byte, reason string) []byte { return AppendError(dst, reason) }

// Step handles the peer's READY. For any other command the error matches
// ErrMalformed.
func (m *Null) Step(dst []byte, c Command) (out []byte, done bool, err error) {
	if err := m.expect(c); err != nil {
		return dst, false, err
	}
	m.peer, err = ParseMetadata(bytes.Clone(c.Data))
	return dst, err == nil, err
}
