package zmtp

import "bytes"

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
	exchange
	properties         []byte
	username, password string
}

var _ Mechanism = (*PlainClient)(nil)

// NewPlainClient returns the client side of PLAIN, which announces the given
// properties, as encoded by [HandshakeConfig.AppendProperties]. It keeps the
// slice. The user name and the password have at most 255 bytes each.
func NewPlainClient(properties []byte, username, password string) *PlainClient {
	return &PlainClient{exchange{want: commandWelcome}, properties, username, password}
}

// Name returns "PLAIN".
func (m *PlainClient) Name() string { return plainName }

// Start appends HELLO. The error matches ErrConfig if the user name or the
// password has more than 255 bytes.
func (m *PlainClient) Start(dst []byte) ([]byte, error) {
	if len(m.username) > shortBody || len(m.password) > shortBody {
		return dst, &ProtocolError{Op: "handshake", Reason: "user name or password over 255 bytes", Err: ErrConfig}
	}
	dst = appendCommandStart(dst, commandHello, 2+len(m.username)+len(m.password))
	dst = append(append(dst, byte(len(m.username))), m.username...)
	return append(append(dst, byte(len(m.password))), m.password...), nil
}

// Step handles WELCOME, which it answers with INITIATE, and then READY.
func (m *PlainClient) Step(dst []byte, c Command) (out []byte, done bool, err error) {
	err = m.expect(c)
	switch {
	case err != nil:
		return dst, false, err
	case m.want == CommandReady:
		m.peer, err = ParseMetadata(bytes.Clone(c.Data))
		return dst, err == nil, err
	case len(c.Data) > 0:
		return dst, false, malformed("handshake", "size of WELCOME")
	}
	m.want = CommandReady
	return AppendCommand(dst, commandInitiate, m.properties), false, nil
}

// PlainServer is the server side of the PLAIN mechanism; see [PlainClient].
// After HELLO it pauses until the caller has checked the user name and the
// password. It then sends WELCOME.
type PlainServer struct {
	serving
	properties []byte
}

var _ AuthMechanism = (*PlainServer)(nil)

// NewPlainServer returns the server side of PLAIN, which announces the given
// properties, as encoded by [HandshakeConfig.AppendProperties]. It keeps the
// slice.
func NewPlainServer(properties []byte) *PlainServer {
	return &PlainServer{serving{exchange: exchange{want: commandHello}}, properties}
}

// Name returns "PLAIN".
func (m *PlainServer) Name() string { return plainName }

// Start appends nothing, because the client begins.
func (m *PlainServer) Start(dst []byte) ([]byte, error) { return dst, nil }

// Step handles HELLO and, after Accept, INITIATE, which it answers with READY.
func (m *PlainServer) Step(dst []byte, c Command) (out []byte, done bool, err error) {
	if err := m.expect(c); err != nil {
		return dst, false, err
	}
	if m.want == commandHello {
		username, password, ok := parsePlainHello(c.Data)
		if !ok {
			return dst, false, malformed("handshake", "size of HELLO")
		}
		m.credentials = [][]byte{bytes.Clone(username), bytes.Clone(password)}
		m.want, m.waiting = "", true
		return dst, false, nil
	}
	if m.peer, err = ParseMetadata(bytes.Clone(c.Data)); err != nil {
		return dst, false, err
	}
	m.want = ""
	return AppendCommand(dst, CommandReady, m.properties), true, nil
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

// Accept appends WELCOME.
func (m *PlainServer) Accept(dst []byte) (out []byte, done bool, err error) {
	m.want, m.waiting, m.credentials = commandInitiate, false, nil
	return AppendCommand(dst, commandWelcome, nil), false, nil
}

// Refuse appends ERROR in libzmq's form; see [PlainClient].
func (m *PlainServer) Refuse(dst []byte, reason string) []byte {
	reason = reason[:min(len(reason), shortBody)]
	dst = AppendHeader(dst, FlagCommand, len(plainError)+1+len(reason))
	dst = append(append(dst, plainError...), byte(len(reason)))
	return append(dst, reason...)
}
