package zmtp

import (
	"crypto/subtle"
	"encoding/binary"
	"time"
)

// CurveServerConfig configures the server side of CURVE.
type CurveServerConfig struct {
	// Properties holds the properties to send to the client, encrypted, as
	// encoded by [HandshakeConfig.AppendProperties]. The slice is kept.
	Properties []byte
	// Keys is the server's long-term key pair. Clients must know the public key.
	Keys KeyPair
	// More holds other long-term key pairs of the server, such as a former one. Clients may know
	// any of the public keys. The slice is kept, and not changed.
	More []KeyPair
	// Limits limits the size of frames after the handshake. MaxMessage and
	// MaxCommand are used.
	Limits Limits
	// CookieLifetime is how long the client may take from WELCOME to INITIATE.
	// If it is not positive, or larger than the constant [CookieLifetime], it is
	// that constant.
	CookieLifetime time.Duration
}

// CurveServer is the server side of the CURVE mechanism; see [CurveClient].
// After HELLO and INITIATE, when the client has proved to own its long-term
// key, it pauses until the caller has checked that key. It then sends READY.
//
// Between WELCOME and INITIATE, the server stores neither the client's key nor
// the secret key of the connection. Both are in the cookie. The server keeps
// only the 32-byte key that opens the cookie, once and within [CookieLifetime].
type CurveServer struct {
	serving
	config    CurveServerConfig
	cookieKey secretKey
	session   secretKey
	seen      uint64    // the last short nonce of the client
	welcomed  time.Time // when WELCOME was created
	random    func([]byte)
	now       func() time.Time
}

var _ AuthMechanism = (*CurveServer)(nil)

// NewCurveServer returns the server side of CURVE for one connection. If a key
// is missing, the handshake fails with ErrConfig.
func NewCurveServer(c CurveServerConfig) *CurveServer {
	if c.CookieLifetime <= 0 || c.CookieLifetime > CookieLifetime {
		c.CookieLifetime = CookieLifetime
	}
	return &CurveServer{serving: serving{exchange: exchange{want: commandHello}}, config: c, random: fillRandom, now: time.Now}
}

// Name returns "CURVE".
func (m *CurveServer) Name() string { return curveName }

// Start appends nothing, because the client begins. The error matches ErrConfig
// if a key is missing.
func (m *CurveServer) Start(dst []byte) ([]byte, error) {
	if m.config.Keys.Public.IsZero() || m.config.Keys.Secret.IsZero() {
		return dst, &ProtocolError{Op: "handshake", Reason: "a CURVE key is missing", Err: ErrConfig}
	}
	return dst, nil
}

// Step handles HELLO, which it answers with WELCOME, and then INITIATE.
func (m *CurveServer) Step(dst []byte, c Command) (out []byte, done bool, err error) {
	if err := m.expect(c); err != nil {
		return dst, false, err
	}
	if m.want == commandHello {
		out, err = m.welcome(dst, c.Data)
		return out, false, err
	}
	return dst, false, m.initiate(c.Data)
}

// welcome handles the data of HELLO and appends WELCOME.
func (m *CurveServer) welcome(dst, data []byte) ([]byte, error) {
	if len(data) != helloSize {
		return dst, malformed("handshake", "size of HELLO")
	}
	if string(data[:2]) != curveVersion {
		return dst, malformed("handshake", "version of HELLO")
	}
	// As in libzmq, the padding is not checked.
	data = data[2+helloPadding:]
	client, nonce, sealed := PublicKey(data[:KeySize]), data[KeySize:KeySize+shortNonce], data[KeySize+shortNonce:]
	var hello secretKey
	var zeros [helloSigned]byte
	signed, err := m.hello(&hello, &client, &m.config.Keys, sealed, nonce)
	for i := 0; err != nil && i < len(m.config.More); i++ {
		// Which key the client knows, HELLO does not say.
		if signed, err = m.hello(&hello, &client, &m.config.More[i], sealed, nonce); err == nil {
			m.config.Keys = m.config.More[i]
		}
	}
	m.config.More = nil
	if err != nil {
		return dst, err
	}
	if subtle.ConstantTimeCompare(signed, zeros[:]) != 1 {
		return dst, malformed("handshake", "contents of HELLO")
	}
	m.seen = binary.BigEndian.Uint64(nonce)

	var connected KeyPair
	m.random(connected.Secret[:])
	connected.Public = connected.Secret.Public()
	m.random(m.cookieKey[:])
	var random [2 * longNonce]byte
	m.random(random[:])
	welcomeNonce, cookieNonce := random[:longNonce], random[longNonce:]

	inner := make([]byte, 0, KeySize+cookieSize)
	inner = append(inner, connected.Public[:]...)
	inner = append(inner, cookieNonce...)
	secrets := append(append(make([]byte, 0, 2*KeySize), client[:]...), connected.Secret[:]...)
	inner = seal(inner, secrets, nonceOf(prefixCookie, cookieNonce), &m.cookieKey)
	clear(secrets)
	clear(connected.Secret[:])

	dst = appendCommandStart(dst, commandWelcome, welcomeSize)
	dst = append(dst, welcomeNonce...)
	dst = seal(dst, inner, nonceOf(prefixWelcome, welcomeNonce), &hello)
	clear(hello[:])
	m.want, m.welcomed = commandInitiate, m.now()
	return dst, nil
}

// hello opens the box of HELLO with one of the server's key pairs, and sets shared to the key that they agree on.
func (m *CurveServer) hello(shared *secretKey, client *PublicKey, keys *KeyPair, sealed, nonce []byte) ([]byte, error) {
	if err := agree(shared, client, &keys.Secret); err != nil {
		return nil, err
	}
	return open(make([]byte, 0, helloSigned), sealed, nonceOf(prefixHello, nonce), shared, commandHello)
}

// expires returns when the cookie expires, or zero if there is none.
func (m *CurveServer) expires() time.Time {
	if m.want != commandInitiate {
		return time.Time{}
	}
	return m.welcomed.Add(m.config.CookieLifetime)
}

// initiate handles the data of INITIATE.
func (m *CurveServer) initiate(data []byte) error {
	if len(data) < initiateFixed {
		return malformed("handshake", "size of INITIATE")
	}
	if !m.now().Before(m.expires()) {
		return cryptographic("handshake", "the cookie has expired")
	}
	cookie, nonce, sealed := data[:cookieSize], data[cookieSize:cookieSize+shortNonce], data[cookieSize+shortNonce:]
	secrets, err := open(make([]byte, 0, 2*KeySize), cookie[longNonce:], nonceOf(prefixCookie, cookie[:longNonce]), &m.cookieKey, "cookie")
	clear(m.cookieKey[:])
	if err != nil {
		return err
	}
	defer clear(secrets)
	client, connected := PublicKey(secrets[:KeySize]), SecretKey(secrets[KeySize:])
	defer clear(connected[:])
	if err := agree(&m.session, &client, &connected); err != nil {
		return err
	}
	plain, err := open(nil, sealed, nonceOf(prefixInitiate, nonce), &m.session, commandInitiate)
	if err != nil {
		return err
	}
	count := binary.BigEndian.Uint64(nonce)
	if count <= m.seen {
		return cryptographic("handshake", "nonce of INITIATE")
	}
	m.seen = count

	owner, vouch := PublicKey(plain[:KeySize]), plain[KeySize:KeySize+vouchSize]
	var vouchKey secretKey
	if err := agree(&vouchKey, &owner, &connected); err != nil {
		return err
	}
	vouched, err := open(make([]byte, 0, 2*KeySize), vouch[longNonce:], nonceOf(prefixVouch, vouch[:longNonce]), &vouchKey, "vouch")
	clear(vouchKey[:])
	if err != nil {
		return err
	}
	// The second half binds the vouch to this server. Without it, a server could
	// impersonate its clients to other servers.
	if PublicKey(vouched[:KeySize]) != client || PublicKey(vouched[KeySize:]) != m.config.Keys.Public {
		return cryptographic("handshake", "vouch for other keys")
	}
	if m.peer, err = ParseMetadata(plain[KeySize+vouchSize:]); err != nil {
		return err
	}
	m.credentials = [][]byte{owner[:]}
	clear(m.config.Keys.Secret[:])
	m.want, m.waiting = "", true
	return nil
}

// peerKey returns the client's long-term public key after INITIATE.
func (m *CurveServer) peerKey() PublicKey { return PublicKey(m.credentials[0]) }

// Accept appends READY.
func (m *CurveServer) Accept(dst []byte) (out []byte, done bool, err error) {
	dst = appendCommandStart(dst, CommandReady, readyFixed+len(m.config.Properties))
	dst = binary.BigEndian.AppendUint64(dst, 1)
	dst = seal(dst, m.config.Properties, nonceOf(prefixReady, dst[len(dst)-shortNonce:]), &m.session)
	m.waiting = false
	return dst, true, nil
}

// Refuse appends ERROR, which is not encrypted.
func (m *CurveServer) Refuse(dst []byte, reason string) []byte { return AppendError(dst, reason) }

// Codec returns the codec for the MESSAGE commands of the connection.
func (m *CurveServer) Codec() Codec {
	codec := newCurveCodec(&m.session, true, 1, m.seen, m.config.Limits)
	m.Abandon()
	return codec
}

// Abandon erases all keys.
func (m *CurveServer) Abandon() {
	clear(m.config.Keys.Secret[:])
	clear(m.cookieKey[:])
	clear(m.session[:])
	m.credentials = nil
}
