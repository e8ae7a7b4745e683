package zmtp

import "bytes"

// Names of the commands of the PLAIN and CURVE handshakes, beside READY and
// ERROR.
const (
	commandHello    = "HELLO"
	commandWelcome  = "WELCOME"
	commandInitiate = "INITIATE"
)

const plainName = "PLAIN"

// plainError is how libzmq begins an ERROR of PLAIN: where RFC 24 has the
// size, 5, and then the name, its source has "\x05ERROR", which C reads as the
// byte 5E and then "RROR". Its clients know no other form, and take the right
// one for a violation of the protocol instead of a refusal.
const plainError = "\x5ERROR"

// parseHandshakeCommand is ParseCommand, and knows libzmq's ERROR of PLAIN.
func parseHandshakeCommand(mechanism string, body []byte) (Command, error) {
	if data, ok := bytes.CutPrefix(body, []byte(plainError)); ok && mechanism == plainName {
		return Command{Name: []byte(CommandError), Data: data}, nil
	}
	return ParseCommand(body)
}

// unexpected is the error for a command that does not belong here.
func unexpected(c Command, want string) error {
	switch name := string(c.Name); name {
	case commandHello, commandWelcome, commandInitiate, CommandReady, CommandError, commandMessage:
		return malformed("handshake", name+" instead of "+want)
	}
	return malformed("handshake", "command that is not "+want)
}

// PlainClient is the client's side of the PLAIN mechanism: a user name and a
// password in clear, no encryption (RFC 24).
//
//	HELLO →, ← WELCOME, INITIATE →, ← READY
//
// A server that refuses sends ERROR, whose first two bytes libzmq has got wrong
// in PLAIN: 5E instead of 05 45. A client takes both forms; our server sends
// libzmq's, which is the only one that libzmq's clients understand.
type PlainClient struct {
	properties         []byte
	username, password string
	welcome            bool
	peer               Metadata
}

var _ Mechanism = (*PlainClient)(nil)

// NewPlainClient returns the client's side of PLAIN, which announces the given
// properties, in wire form ([HandshakeConfig.AppendProperties]). It keeps the
// slice. The user name and the password have at most 255 bytes each.
func NewPlainClient(properties []byte, username, password string) *PlainClient {
	return &PlainClient{properties: properties, username: username, password: password}
}

// Name returns "PLAIN".
func (m *PlainClient) Name() string { return plainName }

// AsServer returns false.
func (m *PlainClient) AsServer() bool { return false }

// Start appends HELLO. A user name or password of more than 255 bytes Is
// ErrConfig.
func (m *PlainClient) Start(dst []byte) ([]byte, error) {
	if len(m.username) > maxShort || len(m.password) > maxShort {
		return dst, &ProtocolError{Op: "handshake", Reason: "user name or password over 255 bytes", Err: ErrConfig}
	}
	dst = appendCommandStart(dst, commandHello, 2+len(m.username)+len(m.password))
	dst = append(append(dst, byte(len(m.username))), m.username...)
	return append(append(dst, byte(len(m.password))), m.password...), nil
}

// Step takes WELCOME and answers it with INITIATE, then takes READY.
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

// Peer returns the properties of the server's READY.
func (m *PlainClient) Peer() Metadata { return m.peer }

// Codec returns nil: traffic is plain frames.
func (m *PlainClient) Codec() Codec { return nil }

// Abandon does nothing: there are no keys.
func (m *PlainClient) Abandon() {}

// Stages of a server, of PLAIN as of CURVE: what it waits for.
type serverStage uint8

const (
	wantHello serverStage = iota
	wantVerdict
	wantInitiate
	wantNothing
)

// PlainServer is the server's side of the PLAIN mechanism ([PlainClient]). It
// takes HELLO, stops for the user name and the password to be judged, and
// sends WELCOME once they have been accepted.
type PlainServer struct {
	properties  []byte
	stage       serverStage
	credentials [][]byte
	peer        Metadata
}

var _ Authenticator = (*PlainServer)(nil)

// NewPlainServer returns the server's side of PLAIN, which announces the given
// properties, in wire form ([HandshakeConfig.AppendProperties]). It keeps the
// slice.
func NewPlainServer(properties []byte) *PlainServer {
	return &PlainServer{properties: properties}
}

// Name returns "PLAIN".
func (m *PlainServer) Name() string { return plainName }

// AsServer returns true.
func (m *PlainServer) AsServer() bool { return true }

// Start appends nothing: the client begins.
func (m *PlainServer) Start(dst []byte) ([]byte, error) { return dst, nil }

// Step takes HELLO, and after Accept INITIATE, which it answers with READY.
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

// maxHello is the largest first command that a server accepts from a client. HELLO
// has at most 518 bytes in PLAIN and 200 in CURVE. The client has not proved
// anything before it, so the server buffers little for it.
const maxHello = 1 << 10

// maxCommand bounds HELLO.
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

// cutShort cuts bytes with their size in one byte before them off b.
func cutShort(b []byte) (value, rest []byte, ok bool) {
	if len(b) == 0 || int(b[0]) >= len(b) {
		return nil, nil, false
	}
	end := 1 + int(b[0])
	return b[1:end], b[end:], true
}

// Credentials returns the user name and the password, after HELLO.
func (m *PlainServer) Credentials() (values [][]byte, waiting bool) {
	return m.credentials, m.stage == wantVerdict
}

// Accept appends WELCOME.
func (m *PlainServer) Accept(dst []byte) (out []byte, done bool, err error) {
	m.stage, m.credentials = wantInitiate, nil
	return AppendCommand(dst, commandWelcome, nil), false, nil
}

// Refuse appends ERROR in libzmq's form ([PlainClient]).
func (m *PlainServer) Refuse(dst []byte, reason string) []byte {
	reason = reason[:min(len(reason), maxShort)]
	dst = AppendHeader(dst, FlagCommand, len(plainError)+1+len(reason))
	dst = append(append(dst, plainError...), byte(len(reason)))
	return append(dst, reason...)
}

// Peer returns the properties of the client's INITIATE.
func (m *PlainServer) Peer() Metadata { return m.peer }

// Codec returns nil: traffic is plain frames.
func (m *PlainServer) Codec() Codec { return nil }

// Abandon forgets the credentials.
func (m *PlainServer) Abandon() { m.credentials = nil }
