package zmtp

import "bytes"

// Null is the NULL mechanism: no authentication, no encryption (RFC 37, The
// NULL Security Mechanism).
// Each side sends READY with its properties at once, as in RFC 23 and libzmq,
// and is done when it has the other's.
type Null struct {
	properties []byte
	peer       Metadata
}

var _ Mechanism = (*Null)(nil)

// NewNull returns a NULL mechanism that announces the given properties, in
// wire form ([HandshakeConfig.AppendProperties]). It keeps the slice.
func NewNull(properties []byte) *Null {
	return &Null{properties: properties}
}

// Name returns "NULL".
func (m *Null) Name() string { return "NULL" }

// Start appends READY.
func (m *Null) Start(dst []byte) ([]byte, error) {
	return AppendCommand(dst, CommandReady, m.properties), nil
}

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
