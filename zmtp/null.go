package zmtp

import "bytes"

const nullName = "NULL"

// Null is the NULL mechanism: no authentication, no encryption (RFC 37, The
// NULL Security Mechanism).
// Each side sends READY with its properties at once, as in RFC 23 and libzmq,
// and is done when it has the other's.
type Null struct {
	properties []byte
	peer       Metadata
	judge      bool // Accept is to be called yet
}

var _ Authenticator = (*Null)(nil)

// NewNull returns a NULL mechanism that announces the given properties, in
// wire form ([HandshakeConfig.AppendProperties]). It keeps the slice.
func NewNull(properties []byte) *Null {
	return &Null{properties: properties}
}

// NewNullJudged is NewNull with a judgement: after the greetings, before it
// sends READY, the handshake waits for the caller to accept or deny the peer.
// There are no credentials, but a ZAP handler is told the peer's address.
func NewNullJudged(properties []byte) *Null {
	return &Null{properties: properties, judge: true}
}

// Name returns "NULL".
func (m *Null) Name() string { return nullName }

// AsServer returns false: NULL has no roles.
func (m *Null) AsServer() bool { return false }

// Start appends READY, unless a judgement comes first.
func (m *Null) Start(dst []byte) ([]byte, error) {
	if m.judge {
		return dst, nil
	}
	return AppendCommand(dst, CommandReady, m.properties), nil
}

// Credentials returns no values, and whether a judgement is waited for.
func (m *Null) Credentials() (values [][]byte, waiting bool) { return nil, m.judge }

// Accept appends READY.
func (m *Null) Accept(dst []byte) (out []byte, done bool, err error) {
	m.judge = false
	return AppendCommand(dst, CommandReady, m.properties), false, nil
}

// Refuse appends ERROR.
func (m *Null) Refuse(dst []byte, reason string) []byte { return AppendError(dst, reason) }

// Step takes the peer's READY. Any other command Is ErrMalformed.
func (m *Null) Step(dst []byte, c Command) (out []byte, done bool, err error) {
	if string(c.Name) != CommandReady {
		return dst, false, malformed("handshake", "command that is not READY")
	}
	m.peer, err = ParseMetadata(bytes.Clone(c.Data))
	return dst, err == nil, err
}

// Peer returns the properties of the peer's READY.
func (m *Null) Peer() Metadata { return m.peer }

// Codec returns nil: traffic is plain frames.
func (m *Null) Codec() Codec { return nil }

// Abandon does nothing: there are no keys.
func (m *Null) Abandon() {}
