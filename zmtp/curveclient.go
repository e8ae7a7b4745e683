package zmtp

import "encoding/binary"

// CurveClientConfig configures the client side of CURVE.
type CurveClientConfig struct {
	// Properties holds the properties to send to the server, encrypted, as
	// encoded by [HandshakeConfig.AppendProperties]. The slice is kept.
	Properties []byte
	// Keys is the client's long-term key pair. It is required even if the
	// server accepts every client.
	Keys KeyPair
	// Server is the server's long-term public key. The handshake fails with any
	// other server.
	Server PublicKey
	// Limits limits the size of frames after the handshake. MaxMessage and
	// MaxCommand are used.
	Limits Limits
}

// CurveClient is the client side of the CURVE mechanism (RFC 25 and 26). Both
// sides prove that they own their long-term keys. All traffic is encrypted and
// authenticated with keys that exist only for this connection.
//
//	HELLO →, ← WELCOME, INITIATE →, ← READY, ↔ MESSAGE
type CurveClient struct {
	exchange
	config    CurveClientConfig
	connected KeyPair // C' and c'
	hello     secretKey
	session   secretKey
	seen      uint64 // the last short nonce of the server
	random    func([]byte)
}

var _ Mechanism = (*CurveClient)(nil)

// NewCurveClient returns the client side of CURVE for one connection. If a key
// is missing, the handshake fails with ErrConfig.
func NewCurveClient(c CurveClientConfig) *CurveClient {
	return &CurveClient{exchange: exchange{want: commandWelcome}, config: c, random: fillRandom}
}

// Name returns "CURVE".
func (m *CurveClient) Name() string { return curveName }

// peerKey returns the server's long-term public key.
func (m *CurveClient) peerKey() PublicKey { return m.config.Server }

// Start appends HELLO. The error matches ErrConfig if a key is missing or the
// server's key is invalid.
func (m *CurveClient) Start(dst []byte) ([]byte, error) {
	c := &m.config
	if c.Keys.Public.IsZero() || c.Keys.Secret.IsZero() || c.Server.IsZero() {
		return dst, &ProtocolError{Op: "handshake", Reason: "a CURVE key is missing", Err: ErrConfig}
	}
	m.random(m.connected.Secret[:])
	m.connected.Public = m.connected.Secret.Public()
	if err := agree(&m.hello, &c.Server, &m.connected.Secret); err != nil {
		return dst, &ProtocolError{Op: "handshake", Reason: "the server's CURVE key is invalid", Err: ErrConfig}
	}
	dst = appendCommandStart(dst, commandHello, helloSize)
	dst = append(dst, curveVersion...)
	// HELLO is longer than WELCOME, so that a server does not send more bytes
	// than it has received.
	var zeros [helloPadding]byte
	dst = append(dst, zeros[:]...)
	dst = append(dst, m.connected.Public[:]...)
	dst = binary.BigEndian.AppendUint64(dst, 1)
	return seal(dst, zeros[:helloSigned], nonceOf(prefixHello, dst[len(dst)-shortNonce:]), &m.hello), nil
}

// Step handles WELCOME, which it answers with INITIATE, and then READY.
func (m *CurveClient) Step(dst []byte, c Command) (out []byte, done bool, err error) {
	if err := m.expect(c); err != nil {
		return dst, false, err
	}
	if m.want == commandWelcome {
		out, err = m.initiate(dst, c.Data)
		return out, false, err
	}
	err = m.ready(c.Data)
	return dst, err == nil, err
}

// initiate handles the data of WELCOME and appends INITIATE.
func (m *CurveClient) initiate(dst, data []byte) ([]byte, error) {
	if len(data) != welcomeSize {
		return dst, malformed("handshake", "size of WELCOME")
	}
	var buf [KeySize + cookieSize]byte
	plain, err := open(buf[:0], data[longNonce:], nonceOf(prefixWelcome, data[:longNonce]), &m.hello, "WELCOME")
	if err != nil {
		return dst, err
	}
	server, cookie := PublicKey(plain[:KeySize]), plain[KeySize:]
	if err := agree(&m.session, &server, &m.connected.Secret); err != nil {
		return dst, err
	}
	var vouchKey secretKey
	if err := agree(&vouchKey, &server, &m.config.Keys.Secret); err != nil {
		return dst, err
	}
	var nonce [longNonce]byte
	m.random(nonce[:])
	properties := m.config.Properties
	inner := make([]byte, 0, KeySize+vouchSize+len(properties))
	inner = append(inner, m.config.Keys.Public[:]...)
	inner = append(inner, nonce[:]...)
	vouched := append(append(make([]byte, 0, 2*KeySize), m.connected.Public[:]...), m.config.Server[:]...)
	inner = seal(inner, vouched, nonceOf(prefixVouch, nonce[:]), &vouchKey)
	inner = append(inner, properties...)

	dst = appendCommandStart(dst, commandInitiate, initiateFixed+len(properties))
	dst = append(dst, cookie...)
	dst = binary.BigEndian.AppendUint64(dst, 2)
	dst = seal(dst, inner, nonceOf(prefixInitiate, dst[len(dst)-shortNonce:]), &m.session)
	m.want = CommandReady
	// None of these keys is needed again.
	clear(vouchKey[:])
	clear(m.hello[:])
	clear(m.connected.Secret[:])
	clear(m.config.Keys.Secret[:])
	return dst, nil
}

// ready handles the data of READY.
func (m *CurveClient) ready(data []byte) error {
	if len(data) < readyFixed {
		return malformed("handshake", "size of READY")
	}
	nonce := data[:shortNonce]
	plain, err := open(nil, data[shortNonce:], nonceOf(prefixReady, nonce), &m.session, CommandReady)
	if err != nil {
		return err
	}
	m.seen, m.want = binary.BigEndian.Uint64(nonce), ""
	m.peer, err = ParseMetadata(plain)
	return err
}

// Codec returns the codec for the MESSAGE commands of the connection.
func (m *CurveClient) Codec() Codec {
	codec := newCurveCodec(&m.session, false, 2, m.seen, m.config.Limits)
	m.Abandon()
	return codec
}

// Abandon erases all keys.
func (m *CurveClient) Abandon() {
	clear(m.config.Keys.Secret[:])
	clear(m.connected.Secret[:])
	clear(m.hello[:])
	clear(m.session[:])
}
