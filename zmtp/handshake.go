package zmtp

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"
)

// Mechanism is the part of a handshake that a security mechanism defines: the
// commands between the greetings and the traffic. A Mechanism serves one
// handshake and is driven by it, from one goroutine.
type Mechanism interface {
	// Name is the mechanism's name in the greeting, at most 20 bytes.
	Name() string
	// AsServer is the as-server bit of the greeting: whether this is the
	// side of a mechanism with two roles that asks for credentials. Such a
	// mechanism's ERROR goes from the server to the client only.
	AsServer() bool
	// Start appends the command frames to send as soon as both greetings
	// agree.
	Start(dst []byte) ([]byte, error)
	// Step takes one received command, never an ERROR, and appends the
	// frames that answer it. With done, traffic may start. The bytes of c
	// must not be kept. With an error, out may end with an ERROR to send.
	Step(dst []byte, c Command) (out []byte, done bool, err error)
	// Peer returns the peer's properties, in memory of their own, after done.
	// While an [Authenticator] waits for a judgement, it returns the properties
	// that are known by then, possibly none.
	Peer() Metadata
	// Codec returns, after done, how traffic is to be translated, or nil if
	// it is plain frames. It is asked once.
	Codec() Codec
	// Abandon says that the handshake has failed: keys are to be wiped.
	Abandon()
}

// expirer is a Mechanism that limits its wait for the peer's next command.
type expirer interface {
	// expires returns when the wait ends; the zero time means no limit.
	expires() time.Time
}

// capped is a Mechanism that knows how large the peer's next command can be.
type capped interface {
	// maxCommand returns the largest body to accept; 0 means that only the bound
	// of the handshake applies.
	maxCommand() int
}

// HandshakeConfig is our side of a handshake.
type HandshakeConfig struct {
	// SocketType is our socket's type; it must be one of PAIR to XSUB.
	SocketType SocketType
	// Identity, of 0 to 255 bytes of which the first is not zero, is
	// announced by REQ, DEALER and ROUTER, and by no other type.
	Identity []byte
	// Metadata is further properties to announce. Their names begin with "X-".
	Metadata Metadata
	// Mechanism is the security mechanism; nil is NULL. Another one is made
	// with the bytes of AppendProperties. It may be an [Authenticator].
	Mechanism Mechanism
	// Limits bounds the peer's commands by MaxCommand, and by MaxMessage the
	// frames that a Codec takes.
	Limits Limits
	// MinVersion is the lowest major version of ZMTP that the peer may speak:
	// 1, 2, or 3, which is also what 0 means. An older peer is refused with
	// ErrVersion. Those below 3 know neither mechanisms nor metadata, so with
	// a mechanism other than NULL, or with a judgement, it is 3 whatever is
	// said here: nobody shall get around authentication by claiming to be
	// old. The traffic of such a peer goes through Handshake.Codec.
	MinVersion uint8
}

// Validate reports, as an error that Is ErrConfig, what is wrong with c.
func (c *HandshakeConfig) Validate() error {
	reason := ""
	switch {
	case int(c.SocketType) >= len(socketTypeNames):
		reason = "socket type"
	case len(c.Identity) > maxShort:
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

// AppendProperties appends the wire form of all properties that c announces:
// Socket-Type, Identity for the types that have one, and Metadata.
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

// Peer is what a handshake tells about the other side. It owns its bytes.
type Peer struct {
	// Major and Minor are the peer's version: below 3.1 it wants
	// subscriptions as messages, from there on as commands. Below 3.0 there
	// is neither Metadata nor are there commands: a PING is not answered.
	Major, Minor uint8
	// SocketType is UNKNOWN if the peer did not announce one, as no peer does
	// that is older than all signatures (ZMTP 1.0). Such a one does not
	// announce its subscriptions either; see SendsSubscriptions.
	SocketType SocketType
	// Identity is the peer's, at most 255 bytes; nil if it announced none,
	// or is of a type whose identity RFC 37 has ignored. The first byte may
	// be zero, though the RFC reserves that for a socket's own use.
	Identity []byte
	// Metadata is all properties, the two above included.
	Metadata Metadata
	// UserID and Granted are what Handshake.Accept was given: what the judge
	// of the credentials says of the peer, not the peer itself.
	UserID  string
	Granted Metadata
	// PublicKey is the CURVE key that the peer has proved to own: a client's
	// long-term key, or the server's. It is zero with another mechanism.
	PublicKey PublicKey
}

// SendsSubscriptions reports whether the peer, if it is a subscriber, tells
// what it subscribes to. A ZMTP 1.0 peer without a signature does not: a
// publisher sends it everything, and it filters itself.
func (p *Peer) SendsSubscriptions() bool { return p.Major >= 2 || p.SocketType != UNKNOWN }

// TakesCommands reports whether the peer knows commands, such as PING.
func (p *Peer) TakesCommands() bool { return p.Major >= Major }

// TakesSubscribe reports whether the peer, if it is a publisher, takes
// subscriptions as SUBSCRIBE and CANCEL. An older one wants messages that
// begin with 1 or 0.
func (p *Peer) TakesSubscribe() bool { return p.Major > Major || p.Major == Major && p.Minor >= 1 }

// Handshake is the first stage of a connection as a step function: bytes in,
// bytes out (RFC 37, Overall Behavior). Both sides use it alike.
//
//	out := h.Start(nil)              // send at once, before anything is read
//	for {
//		n, out, done, err := h.Step(in, out[:0])
//		// send out, even if err != nil; then drop in[:n]
//		// done: in[n:] is traffic, for h.Codec(), or for a Decoder
//		// h.Credentials(): judge them, then h.Accept or h.Deny
//		// n == 0: read more
//	}
//
// If h.Codec() is not nil then, the traffic is not ZMTP 3 in plain form, and
// goes through that codec in both directions.
//
// It keeps no bytes of what Step is given. A Handshake belongs to one
// goroutine at a time. A bound on its time is the caller's to set.
type Handshake struct {
	mechanism  Mechanism
	judged     Authenticator // mechanism, if it is one
	socketType SocketType
	maxCommand int
	maxMessage int
	minVersion uint8
	identity   []byte // what a peer below 3.0 is told
	said       int    // bytes of our greeting that were sent
	greeted    bool
	waiting    bool // for Accept or Deny
	done       bool
	answered   bool // a peer below 3.0 was sent all there is to send
	codec      Codec
	err        error // the first error: there is no way on
	peer       Peer
}

// NewHandshake returns a handshake that has neither sent nor received. It
// copies what it needs of c. A c that is not valid is reported by the first
// Step.
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
	h.judged, _ = h.mechanism.(Authenticator)
	h.minVersion = c.MinVersion
	if h.minVersion == 0 || h.mechanism.Name() != nullName || h.toJudge() {
		h.minVersion = Major
	}
	if h.minVersion < Major && c.SocketType.sendsIdentity() {
		h.identity = bytes.Clone(c.Identity)
	}
	h.said = h.startSize()
	return h
}

// Start appends our greeting, to be sent before anything is received: a
// peer may wait for it before it sends the rest of its own. With a MinVersion
// below 3 it is the beginning of the greeting, 10 or 11 bytes; Step appends
// the rest once the peer's version is known.
func (h *Handshake) Start(dst []byte) []byte {
	hello := h.hello()
	return append(dst, hello[:h.startSize()]...)
}

// Step takes one greeting or command from in, the bytes received and not
// consumed yet, and appends to dst what must be sent in answer. n is how many
// bytes of in the caller must drop; with n == 0 more are needed, or
// [Handshake.Credentials] must be judged first, or the handshake is done. After
// done, what follows in[:n] is traffic.
//
// An error is a [*ProtocolError] and final. out may then hold an ERROR that
// should be sent before the connection is closed. The condition is
// ErrVersion or ErrMechanism (greeting), ErrIncompatible (socket types),
// ErrRefused (the peer sent ERROR; Reason is its reason), ErrTooLarge (a
// command above MaxCommand), ErrMalformed, ErrCryptographic (a box of CURVE
// does not open) or ErrConfig; or what a Mechanism from elsewhere returned.
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

// greeting takes the peer's greeting and starts the mechanism.
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
		return n, dst, &ProtocolError{Op: "greeting", Reason: "peer's is " + strconv.Quote(g.Mechanism) + ", ours " + h.mechanism.Name(), Err: ErrMechanism}
	}
	h.greeted = true
	h.peer.Major, h.peer.Minor = g.Major, g.Minor
	if g.Major < Major { // a revision that never was: libzmq takes it for 3.1
		h.peer.Major, h.peer.Minor = Major, 1
	}
	out, err := h.mechanism.Start(dst)
	out, err = h.advance(dst, out, false, err)
	return n, out, err
}

// command takes one command of the peer's.
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

// commandBound returns the largest body of the peer's next command.
func (h *Handshake) commandBound() int {
	if m, ok := h.mechanism.(capped); ok && m.maxCommand() > 0 {
		return min(m.maxCommand(), h.maxCommand)
	}
	return h.maxCommand
}

// Expires returns when the wait for the peer's next command ends; the zero time
// means no limit. Only a CURVE server has one, between WELCOME and INITIATE: see
// [CurveServerConfig]. A caller that is still reading at that time should stop
// and call Abandon.
func (h *Handshake) Expires() time.Time {
	if m, ok := h.mechanism.(expirer); ok && h.err == nil && !h.done {
		return m.expires()
	}
	return time.Time{}
}

// Abandon gives up an unfinished handshake and wipes its keys. A caller uses it when
// the connection is lost or takes too long. It does nothing after the handshake has
// succeeded or failed.
func (h *Handshake) Abandon() {
	if h.err == nil && !h.done {
		h.fail(&ProtocolError{Op: "handshake", Err: ErrAbandoned})
	}
}

// advance takes what the mechanism returned for dst, and looks where the
// handshake is now.
func (h *Handshake) advance(dst, out []byte, done bool, err error) ([]byte, error) {
	switch {
	case err != nil:
		return out, err
	case done:
		if err := h.accept(h.mechanism.Peer()); err != nil {
			// Instead of a READY that the mechanism may have appended. The
			// client of a mechanism with two roles must not send ERROR.
			if h.judged == nil {
				return dst, err
			}
			return h.judged.Refuse(out[:len(dst)], err.Reason), err
		}
		h.done = true
		h.codec = h.mechanism.Codec()
	case h.judged != nil:
		_, h.waiting = h.judged.Credentials()
	}
	return out, nil
}

// accept judges the peer's properties and completes h.peer.
func (h *Handshake) accept(m Metadata) *ProtocolError {
	h.peer.Metadata = m
	if prover, ok := h.mechanism.(interface{ peerKey() PublicKey }); ok {
		h.peer.PublicKey = prover.peerKey()
	}
	h.peer.SocketType = UNKNOWN
	// libzmq too takes a peer that does not tell its type.
	if name, ok := m.Get(PropertySocketType); ok {
		t, err := ParseSocketType(name)
		if err != nil || !Compatible(h.socketType, t) {
			return &ProtocolError{Op: "handshake", Reason: "Socket-Type does not fit " + h.socketType.String(), Err: ErrIncompatible}
		}
		h.peer.SocketType = t
	}
	identity, ok := m.Get(PropertyIdentity)
	if len(identity) > maxShort {
		return &ProtocolError{Op: "handshake", Reason: "Identity over 255 bytes", Err: ErrMalformed}
	}
	if t := h.peer.SocketType; ok && (t == UNKNOWN || t.sendsIdentity()) {
		// A slice of its own: what keeps the identity shall not keep all
		// of the metadata.
		h.peer.Identity = append(make([]byte, 0, len(identity)), identity...)
	}
	return nil
}

// Peer returns what was learnt of the peer. It is complete after done; before,
// only the version may be set. Its bytes are shared with later calls.
func (h *Handshake) Peer() Peer { return h.peer }

// Codec returns, after done, how the connection's traffic is to be translated,
// be it CURVE's or that of a peer below ZMTP 3.0; nil if it is plain frames,
// which a [Decoder] takes as they are. The caller owns it.
func (h *Handshake) Codec() Codec { return h.codec }
