package zmtp

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"
)

// Mechanism is a security mechanism, which defines the commands between the
// greetings and the traffic. A Mechanism is used for one handshake, which calls
// it from one goroutine.
type Mechanism interface {
	// Name returns the mechanism's name in the greeting, at most 20 bytes.
	Name() string
	// AsServer returns the as-server bit of the greeting: whether this is the
	// server side of a mechanism with two roles. With such a mechanism only the
	// server sends ERROR.
	AsServer() bool
	// Start appends the command frames to send after the greetings.
	Start(dst []byte) ([]byte, error)
	// Step handles one received command, which is never an ERROR from a
	// server, and appends the frames that answer it. If done is true, traffic
	// may start. Step must not keep the bytes of c. If err is not nil, out may
	// end with an ERROR to send.
	Step(dst []byte, c Command) (out []byte, done bool, err error)
	// Peer returns a copy of the peer's properties when the handshake is done.
	// While an [AuthMechanism] is waiting for Accept or Refuse, it returns the
	// properties known so far, possibly none.
	Peer() Metadata
	// Codec returns the codec for the traffic when the handshake is done, or
	// nil if the traffic is plain frames. It is called once.
	Codec() Codec
	// Abandon is called when the handshake has failed. It must erase all keys.
	Abandon()
}

// expirer is a Mechanism that limits how long it waits for the peer's next
// command.
type expirer interface {
	// expires returns when the wait ends, or the zero time for no limit.
	expires() time.Time
}

// capped is a Mechanism that knows the maximum size of the peer's next command.
type capped interface {
	// maxCommand returns the size of the largest body to accept, or 0 if only
	// the limit of the handshake applies.
	maxCommand() int
}

// HandshakeConfig configures our side of a handshake.
type HandshakeConfig struct {
	// SocketType is the type of our socket, one of PAIR to XSUB.
	SocketType SocketType
	// Identity is announced if the type is REQ, DEALER or ROUTER. It has at
	// most 255 bytes and must not begin with a zero byte. It may be empty.
	Identity []byte
	// Metadata holds additional properties to announce. Their names must begin
	// with "X-".
	Metadata Metadata
	// Mechanism is the security mechanism. If nil, it is NULL. Create other
	// mechanisms with the result of AppendProperties. It may be an
	// [AuthMechanism].
	Mechanism Mechanism
	// Limits limits the size of the peer's commands by MaxCommand, and the size
	// of frames that a Codec for an older version decodes by MaxMessage.
	Limits Limits
	// MinVersion is the lowest major version of ZMTP that the peer may speak: 1,
	// 2 or 3. If zero, it is 3. An older peer is refused with ErrVersion.
	//
	// Versions before 3 have no security mechanisms and no metadata. So
	// MinVersion is always 3 with a mechanism other than NULL, or if the caller
	// authenticates the peer: a peer must not avoid authentication by
	// pretending to be old. The traffic of older peers requires Handshake.Codec.
	MinVersion uint8
}

// Validate returns an error that matches ErrConfig if c is invalid.
func (c *HandshakeConfig) Validate() error {
	reason := ""
	switch {
	case int(c.SocketType) >= len(socketTypeNames):
		reason = "socket type"
	case len(c.Identity) > shortBody:
		reason = "identity over 255 bytes"
	case len(c.Identity) > 0 && c.Identity[0] == 0:
		reason = "identity that begins with a zero byte"
	case c.Mechanism != nil && (c.Mechanism.Name() == "" || len(c.Mechanism.Name()) > greetingAsServer-greetingMechanism):
		reason = "name of the mechanism"
	case c.MinVersion > Major:
		reason = "MinVersion above 3"
	}
	for _, p := range c.Metadata {
		if len(p.Name) < 3 || !strings.EqualFold(p.Name[:2], "X-") || !validName(p.Name) {
			reason = "property name " + p.Name
		}
		if int64(len(p.Value)) >= 1<<31 {
			reason = "value of property " + p.Name
		}
	}
	if reason == "" {
		return nil
	}
	return &ProtocolError{Op: "handshake", Reason: reason, Err: ErrConfig}
}

// AppendProperties appends the wire form of all properties that c announces to
// dst: Socket-Type, Identity if the type announces one, and Metadata.
func (c *HandshakeConfig) AppendProperties(dst []byte) []byte {
	dst = AppendProperty(dst, PropertySocketType, []byte(c.SocketType.String()))
	if c.SocketType.sendsIdentity() {
		dst = AppendProperty(dst, PropertyIdentity, c.Identity)
	}
	for _, p := range c.Metadata {
		dst = AppendProperty(dst, p.Name, p.Value)
	}
	return dst
}

// Peer describes the peer of a handshake. It owns its bytes.
type Peer struct {
	// Major and Minor are the peer's version. See TakesSubscribe and
	// TakesCommands. A peer before 3.0 has no Metadata.
	Major, Minor uint8
	// SocketType is TypeUnknown if the peer has not announced its type. ZMTP 1.0
	// peers without a signature never do. See also SendsSubscriptions.
	SocketType SocketType
	// Identity is the identity that the peer has announced, at most 255 bytes.
	// It is nil if the peer has announced none, or has a type whose identity
	// must be ignored according to RFC 37. It may begin with a zero byte,
	// although the RFC reserves such identities.
	Identity []byte
	// Metadata holds all properties, including the socket type and identity.
	Metadata Metadata
	// UserID and Granted are the arguments of Handshake.Accept. They come from
	// the caller that authenticated the peer, not from the peer.
	UserID  string
	Granted Metadata
	// PublicKey is the long-term CURVE key that the peer, client or server, has
	// proved to own. It is zero with other mechanisms.
	PublicKey PublicKey
}

// SendsSubscriptions reports whether the peer, if it is a subscriber, sends its
// subscriptions. A ZMTP 1.0 peer without a signature does not: a publisher
// sends all messages to it, and the peer filters them itself.
func (p *Peer) SendsSubscriptions() bool { return p.Major >= 2 || p.SocketType != TypeUnknown }

// TakesCommands reports whether the peer understands commands, such as PING. It
// does so from ZMTP 3.0 on.
func (p *Peer) TakesCommands() bool { return p.Major >= Major }

// TakesSubscribe reports whether the peer, if it is a publisher, understands
// the commands SUBSCRIBE and CANCEL. It does so from ZMTP 3.1 on; to older
// peers, send messages that begin with byte 1 or 0.
func (p *Peer) TakesSubscribe() bool { return p.Major > Major || p.Major == Major && p.Minor >= 1 }

// Handshake is the first stage of a connection, as a step function (RFC 37,
// section "Overall Behavior"). Both sides use it in the same way:
//
//	out := h.Start(nil)              // send out before reading anything
//	for {
//		n, out, done, err := h.Step(in, out[:0])
//		// Send out, even if err != nil; then drop in[:n].
//		// If done, in[n:] is traffic: pass it to h.Codec(), or to a Decoder.
//		// If h.Credentials() has some, check them and call h.Accept or h.Deny.
//		// If n == 0, read more.
//	}
//
// If h.Codec() is not nil after that, the traffic in both directions must pass
// through that codec.
//
// A Handshake does not keep the bytes passed to Step. It must be used by one
// goroutine at a time. The caller should limit its duration; see also Expires.
type Handshake struct {
	mechanism  Mechanism
	auth       AuthMechanism // the mechanism, if it is an AuthMechanism
	socketType SocketType
	maxCommand int
	maxMessage int
	minVersion uint8
	identity   []byte // identity to announce to a peer below 3.0
	said       int    // bytes of our greeting that were sent
	greeted    bool
	waiting    bool // for Accept or Deny
	done       bool
	answered   bool // everything was sent to a peer below 3.0
	codec      Codec
	err        error // the first error, which is final
	peer       Peer
}

// NewHandshake returns a handshake with the given configuration. It keeps c.Mechanism and
// copies the rest. If c is invalid, the first call of Step returns the error.
func NewHandshake(c HandshakeConfig) *Handshake {
	h := &Handshake{
		mechanism:  c.Mechanism,
		socketType: c.SocketType,
		maxCommand: c.Limits.bounds().command,
		maxMessage: min(c.Limits.bounds().message, math.MaxInt-longHeader1),
		err:        c.Validate(),
	}
	if h.mechanism == nil {
		h.mechanism = NewNull(c.AppendProperties(nil))
	}
	h.auth, _ = h.mechanism.(AuthMechanism)
	h.minVersion = c.MinVersion
	if h.minVersion == 0 || h.mechanism.Name() != nullName || h.mustAuthenticate() {
		h.minVersion = Major
	}
	if h.minVersion < Major && c.SocketType.sendsIdentity() {
		h.identity = bytes.Clone(c.Identity)
	}
	h.said = h.startSize()
	return h
}

// Start appends our greeting to dst. The caller must send it before it receives
// anything, because the peer may wait for it. If MinVersion is less than 3,
// Start appends only the first 10 or 11 bytes; Step appends the rest when the
// peer's version is known.
func (h *Handshake) Start(dst []byte) []byte {
	hello := h.hello()
	return append(dst, hello[:h.startSize()]...)
}

// Step handles one greeting or command at the start of in, which holds the
// bytes received and not consumed yet, and appends the bytes to send in answer
// to dst. n is the number of bytes of in that the caller must drop. If n is 0,
// more bytes are needed, or [Handshake.Credentials] must be checked first, or
// the handshake is done. If done is true, in[n:] is traffic.
//
// An error is final. out may then contain an ERROR that should be sent before
// the connection is closed. The error is a [*ProtocolError], unless a Mechanism
// of another package has returned it, and matches one of these conditions:
// ErrVersion or ErrMechanism for the greeting, ErrIncompatible for the socket
// type, ErrRefused if the peer has sent ERROR, ErrTooLarge for a command above
// MaxCommand, ErrMalformed, ErrCryptographic, or ErrConfig.
func (h *Handshake) Step(in []byte, dst []byte) (n int, out []byte, done bool, err error) {
	if h.err != nil || h.done || h.waiting {
		return 0, dst, h.done, h.err
	}
	if h.greeted {
		n, out, err = h.command(in, dst)
	} else {
		n, out, err = h.greeting(in, dst)
	}
	if err != nil {
		h.fail(err)
	}
	return n, out, h.done, err
}

// fail ends the handshake.
func (h *Handshake) fail(err error) {
	h.err = err
	h.mechanism.Abandon()
}

// greeting handles the peer's greeting and starts the mechanism.
func (h *Handshake) greeting(in, dst []byte) (int, []byte, error) {
	dst, version, err := h.negotiate(in, dst)
	switch {
	case err != nil || version == undecided:
		return 0, dst, err
	case version != zmtp3:
		return h.downgrade(in, dst, version)
	}
	g, n, err := ParseGreeting(in)
	if n == 0 || err != nil {
		return 0, dst, err
	}
	if g.Mechanism != h.mechanism.Name() {
		return n, dst, &ProtocolError{Op: "greeting", Reason: "peer uses " + strconv.Quote(g.Mechanism) + ", we use " + h.mechanism.Name(), Err: ErrMechanism}
	}
	h.greeted = true
	h.peer.Major, h.peer.Minor = g.Major, g.Minor
	if g.Major < Major { // a revision that never existed; libzmq treats it as 3.1
		h.peer.Major, h.peer.Minor = Major, 1
	}
	out, err := h.mechanism.Start(dst)
	out, err = h.advance(dst, out, false, err)
	return n, out, err
}

// command handles one command of the peer.
func (h *Handshake) command(in, dst []byte) (int, []byte, error) {
	head, ok, huge := parseHeader(in)
	switch {
	case head.size == 0:
		return 0, dst, nil
	case head.flags&FlagCommand == 0:
		return 0, dst, malformed("handshake", "message before READY")
	case head.flags&FlagMore != 0:
		return 0, dst, malformed("handshake", "command with MORE")
	case !ok:
		return 0, dst, nil
	case huge || head.body > h.commandBound():
		return 0, dst, tooLarge("handshake", "command above MaxCommand")
	case len(in)-head.size < head.body:
		return 0, dst, nil
	}
	n := head.size + head.body
	c, err := parseHandshakeCommand(h.mechanism.Name(), in[head.size:n])
	if err != nil {
		return n, dst, err
	}
	if string(c.Name) == CommandError && !h.mechanism.AsServer() {
		reason, err := ParseError(c.Data)
		if err != nil {
			return n, dst, err
		}
		return n, dst, &ProtocolError{Op: "handshake", Reason: reason, Err: ErrRefused}
	}
	out, done, err := h.mechanism.Step(dst, c)
	out, err = h.advance(dst, out, done, err)
	return n, out, err
}

// commandBound returns the maximum size of the body of the peer's next command.
func (h *Handshake) commandBound() int {
	if m, ok := h.mechanism.(capped); ok && m.maxCommand() > 0 {
		return min(m.maxCommand(), h.maxCommand)
	}
	return h.maxCommand
}

// Expires returns when the wait for the peer's next command ends, or the zero
// time for no limit. Only a CURVE server has such a limit, between WELCOME and
// INITIATE; see [CurveServerConfig]. A caller that is still waiting at that
// time should call Abandon.
func (h *Handshake) Expires() time.Time {
	if m, ok := h.mechanism.(expirer); ok && h.err == nil && !h.done {
		return m.expires()
	}
	return time.Time{}
}

// Abandon gives up an unfinished handshake and erases its keys. Call it if the
// connection is lost or takes too long. It does nothing if the handshake has
// succeeded or failed.
func (h *Handshake) Abandon() {
	if h.err == nil && !h.done {
		h.fail(&ProtocolError{Op: "handshake", Err: ErrAbandoned})
	}
}

// advance handles the results of the mechanism and updates the state of the
// handshake.
func (h *Handshake) advance(dst, out []byte, done bool, err error) ([]byte, error) {
	switch {
	case err != nil:
		return out, err
	case done:
		if err := h.accept(h.mechanism.Peer()); err != nil {
			// ERROR replaces a READY that the mechanism may have appended. The
			// client of a mechanism with two roles must not send ERROR.
			if h.auth == nil {
				return dst, err
			}
			return h.auth.Refuse(out[:len(dst)], err.Reason), err
		}
		h.done = true
		h.codec = h.mechanism.Codec()
	case h.auth != nil:
		_, h.waiting = h.auth.Credentials()
	}
	return out, nil
}

// accept checks the peer's properties and completes h.peer.
func (h *Handshake) accept(m Metadata) *ProtocolError {
	h.peer.Metadata = m
	if prover, ok := h.mechanism.(interface{ peerKey() PublicKey }); ok {
		h.peer.PublicKey = prover.peerKey()
	}
	h.peer.SocketType = TypeUnknown
	// Like libzmq, we accept a peer that does not announce its type.
	if name, ok := m.Get(PropertySocketType); ok {
		t, err := ParseSocketType(name)
		if err != nil || !Compatible(h.socketType, t) {
			return &ProtocolError{Op: "handshake", Reason: "Socket-Type does not fit " + h.socketType.String(), Err: ErrIncompatible}
		}
		h.peer.SocketType = t
	}
	if identity, _ := m.Get(PropertyIdentity); len(identity) > shortBody {
		return &ProtocolError{Op: "handshake", Reason: "Identity over 255 bytes", Err: ErrMalformed}
	}
	h.peer.Identity = announcedIdentity(m)
	return nil
}

// Peer returns the description of the peer. It is complete when the handshake is done;
// before that, only the version may be set. All calls return the same bytes.
func (h *Handshake) Peer() Peer { return h.peer }

// Codec returns, when the handshake is done, the codec for the traffic: that of
// CURVE, or that of a peer before ZMTP 3.0. It returns nil if the traffic is
// plain frames, which a [Decoder] decodes directly. The caller owns the codec.
func (h *Handshake) Codec() Codec { return h.codec }
