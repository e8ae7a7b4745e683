package zmtp

import "bytes"

// Names of the commands of the PLAIN and CURVE handshakes, in addition to READY and
// ERROR.
const (
	commandHello    = "HELLO"
	commandWelcome  = "WELCOME"
	commandInitiate = "INITIATE"
)

const plainName = "PLAIN"

// plainError is the beginning of an ERROR of PLAIN in libzmq. RFC 24 requires
// the size, 5, followed by the name. libzmq's source has "\x05ERROR" instead,
// which C reads as the byte 5E followed by "RROR". Clients that use libzmq
// understand only this form, and take the correct one for a protocol error
// rather than a refusal.
const plainError = "\x5ERROR"

// parseHandshakeCommand is like ParseCommand but also recognizes libzmq's ERROR
// of PLAIN.
func parseHandshakeCommand(mechanism string, body []byte) (Command, error) {
	if data, ok := bytes.CutPrefix(body, []byte(plainError)); ok && mechanism == plainName {
		return Command{Name: []byte(CommandError), Data: data}, nil
	}
	return ParseCommand(body)
}

// unexpected returns the error for a command that is not expected at this
// point.
func unexpected(c Command, want string) error {
	switch name := string(c.Name); name {
	case commandHello, commandWelcome, commandInitiate, CommandReady, CommandError, commandMessage:
		return malformed("handshake", name+" instead of "+want)
	}
	return malformed("handshake", "command that is not "+want)
}

// PlainClient is the client side of the PLAIN mechanism: a user name and a
// password in clear text, and no encryption (RFC 24).
//
//	HELLO →, ← WELCOME, INITIATE →, ← READY
//
// A server that refuses the client sends ERROR. In libzmq's PLAIN the first two
// bytes of this command are wrong, 5E instead of 05 45. A PlainClient accepts
// both forms. A [PlainServer] sends libzmq's form, because libzmq's clients
// understand no other.
type PlainClient struct {
	properties         []byte
	username, password string
	welcome            bool
	peer               Metadata
}

var _ Mechanism = (*PlainClient)(nil)

// NewPlainClient returns the client side of PLAIN, which announces the given
// properties, as encoded by [HandshakeConfig.AppendProperties]. It keeps the
// slice. The user name and the password have at most 255 bytes each.
func NewPlainClient(properties []byte, username, password string) *PlainClient {
	return &PlainClient{properties: properties, username: username, password: password}
}

// Name returns "PLAIN".
func (m *PlainClient) Name() string { return plainName }

// AsServer returns false.
func (m *PlainClient) AsServer() bool { return false }

// Start appends HELLO. The error matches ErrConfig if the user name or the
// password has more than 255 bytes.
func (m *PlainClient) Start(dst []byte) ([]byte, error) {
	if len(m.username) > maxShort || len(m.password) > maxShort {
		return dst, &ProtocolError{Op: "handshake", Reason: "user name or password over 255 bytes", Err: ErrConfig}
	}
	dst = appendCommandStart(dst, commandHello, 2+len(m.username)+len(m.password))
	dst = append(append(dst, byte(len(m.username))), m.username...)
	return append(append(dst, byte(len(m.password))), m.password...), nil
}

// Step handles WELCOME, which it answers with INITIATE, and then READY.
func (m *PlainClient) Step(dst []byte, c Command) (out []byte, done bool, err error) {
	if !m.welcome {
		switch {
		case string(c.Name) != commandWelcome:
			return dst, false, unexpected(c, commandWelcome)
		case len(c.Data) > 0:
			return dst, false, malformed("handshake", "size of WELCOME")
		}
		m.welcome = true
		return AppendCommand(dst, commandInitiate, m.properties), false, nil
	}
	if string(c.Name) != CommandReady {
		return dst, false, unexpected(c, CommandReady)
	}
	m.peer, err = ParseMetadata(bytes.Clone(c.Data))
	return dst, err == nil, err
}

// Peer returns the properties in the server's READY.
func (m *PlainClient) Peer() Metadata { return m.peer }

// Codec returns nil, because the traffic is plain frames.
func (m *PlainClient) Codec() Codec { return nil }

// Abandon does nothing, because there are no keys.
func (m *PlainClient) Abandon() {}

// serverStage is what a PLAIN or CURVE server is waiting for.
type serverStage uint8

const (
	wantHello serverStage = iota
	wantVerdict
	wantInitiate
	wantNothing
)

// PlainServer is the server side of the PLAIN mechanism; see [PlainClient].
// After HELLO it pauses until the caller has checked the user name and the
// password. It then sends WELCOME.
type PlainServer struct {
	properties  []byte
	stage       serverStage
	credentials [][]byte
	peer        Metadata
}

var _ Authenticator = (*PlainServer)(nil)

// NewPlainServer returns the server side of PLAIN, which announces the given
// properties, as encoded by [HandshakeConfig.AppendProperties]. It keeps the
// slice.
func NewPlainServer(properties []byte) *PlainServer {
	return &PlainServer{properties: properties}
}

// Name returns "PLAIN".
func (m *PlainServer) Name() string { return plainName }

// AsServer returns true.
func (m *PlainServer) AsServer() bool { return true }

// Start appends nothing, because the client begins.
func (m *PlainServer) Start(dst []byte) ([]byte, error) { return dst, nil }

// Step handles HELLO and, after Accept, INITIATE, which it answers with READY.
func (m *PlainServer) Step(dst []byte, c Command) (out []byte, done bool, err error) {
	switch m.stage {
	case wantHello:
		if string(c.Name) != commandHello {
			return dst, false, unexpected(c, commandHello)
		}
		username, password, ok := parsePlainHello(c.Data)
		if !ok {
			return dst, false, malformed("handshake", "size of HELLO")
		}
		m.credentials = [][]byte{bytes.Clone(username), bytes.Clone(password)}
		m.stage = wantVerdict
		return dst, false, nil
	case wantInitiate:
		if string(c.Name) != commandInitiate {
			return dst, false, unexpected(c, commandInitiate)
		}
		if m.peer, err = ParseMetadata(bytes.Clone(c.Data)); err != nil {
			return dst, false, err
		}
		m.stage = wantNothing
		return AppendCommand(dst, CommandReady, m.properties), true, nil
	}
	return dst, false, unexpected(c, "nothing")
}

// maxHello is the maximum size of the first command that a server accepts from
// a client. HELLO has at most 518 bytes in PLAIN and 200 in CURVE. The client
// has not proved anything yet, so the server buffers only little for it.
const maxHello = 1 << 10

// maxCommand limits HELLO.
func (m *PlainServer) maxCommand() int {
	if m.stage == wantHello {
		return maxHello
	}
	return 0
}

// parsePlainHello splits the data of a HELLO.
func parsePlainHello(data []byte) (username, password []byte, ok bool) {
	if username, data, ok = cutShort(data); !ok {
		return nil, nil, false
	}
	password, data, ok = cutShort(data)
	return username, password, ok && len(data) == 0
}

// cutShort splits a value that is preceded by its size in one byte off b.
func cutShort(b []byte) (value, rest []byte, ok bool) {
	if len(b) == 0 || int(b[0]) >= len(b) {
		return nil, nil, false
	}
	end := 1 + int(b[0])
	return b[1:end], b[end:], true
}

// Credentials returns the user name and the password after HELLO.
func (m *PlainServer) Credentials() (values [][]byte, waiting bool) {
	return m.credentials, m.stage == wantVerdict
}

// Accept appends WELCOME.
func (m *PlainServer) Accept(dst []byte) (out []byte, done bool, err error) {
	m.stage, m.credentials = wantInitiate, nil
	return AppendCommand(dst, commandWelcome, nil), false, nil
}

// Refuse appends ERROR in libzmq's form; see [PlainClient].
func (m *PlainServer) Refuse(dst []byte, reason string) []byte {
	reason = reason[:min(len(reason), maxShort)]
	dst = AppendHeader(dst, FlagCommand, len(plainError)+1+len(reason))
	dst = append(append(dst, plainError...), byte(len(reason)))
	return append(dst, reason...)
}

// Peer returns the properties in the client's INITIATE.
func (m *PlainServer) Peer() Metadata { return m.peer }

// Codec returns nil, because the traffic is plain frames.
func (m *PlainServer) Codec() Codec { return nil }

// Abandon drops the credentials.
func (m *PlainServer) Abandon() { m.credentials = nil }
