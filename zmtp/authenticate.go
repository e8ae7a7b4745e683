package zmtp

// Status codes of a judgement about a peer's credentials, with which
// [Handshake.Deny] is called (RFC 27, The ZAP Reply). Anything but a
// temporary failure is told to the peer, as an ERROR with the three digits.
const (
	StatusAccepted  = "200" // what Handshake.Accept stands for
	StatusTemporary = "300" // the peer may try again; it is told nothing
	StatusDenied    = "400" // the credentials are refused
	StatusFailed    = "500" // the judge could not do its work
)

// Credentials is what a peer proves itself by, to be judged by the caller of
// a [Handshake].
type Credentials struct {
	// Mechanism is the security mechanism: "NULL", "PLAIN" or "CURVE".
	Mechanism string
	// Values is, for NULL, empty; for PLAIN the user name and the password,
	// each of at most 255 bytes; for CURVE the client's long-term public
	// key of 32 bytes, which the client has proved to own. It is the
	// caller's to keep.
	Values [][]byte
	// Identity is the identity that the peer announced, of at most 255 bytes. It
	// is nil with NULL and PLAIN, where the peer sends its properties after the
	// judgement.
	Identity []byte
}

// Authenticator is a [Mechanism] that stops in its middle for the caller to
// judge the peer's credentials, for as long as that takes.
type Authenticator interface {
	Mechanism
	// Credentials returns the peer's credentials, in memory of their own,
	// while a judgement is waited for.
	Credentials() (values [][]byte, waiting bool)
	// Accept goes on after a favourable judgement, with the frames to send
	// appended. out, done and err are as Step returns them.
	Accept(dst []byte) (out []byte, done bool, err error)
	// Refuse appends the ERROR with the given reason, of at most 255 bytes.
	Refuse(dst []byte, reason string) []byte
}

// Credentials returns what the caller has to judge, and whether there is
// anything: if so, Step takes nothing until [Handshake.Accept] or
// [Handshake.Deny] has been called. It is to be asked after each Step that
// returned neither done nor an error.
func (h *Handshake) Credentials() (Credentials, bool) {
	if !h.waiting {
		return Credentials{}, false
	}
	values, waiting := h.judged.Credentials()
	return Credentials{Mechanism: h.mechanism.Name(), Values: values, Identity: announcedIdentity(h.mechanism.Peer())}, waiting
}

// announcedIdentity returns a copy of the identity among a peer's properties, or nil
// if there is none or accept would ignore or refuse it.
func announcedIdentity(m Metadata) []byte {
	identity, ok := m.Get(PropertyIdentity)
	name, told := m.Get(PropertySocketType)
	t, err := ParseSocketType(name)
	if !ok || len(identity) > maxShort || told && (err != nil || !t.sendsIdentity()) {
		return nil
	}
	return append(make([]byte, 0, len(identity)), identity...)
}

// Accept lets the peer in whose credentials were waiting to be judged. userID
// and granted, which a ZAP handler may give, are kept in [Peer]. The results
// are those of [Handshake.Step]; without done or an error the caller goes on
// with Step, first of all with the bytes that it has already. Accept without
// credentials to judge changes nothing.
func (h *Handshake) Accept(dst []byte, userID string, granted Metadata) (out []byte, done bool, err error) {
	if h.err != nil || h.done || !h.waiting {
		return dst, h.done, h.err
	}
	h.waiting = false
	h.peer.UserID, h.peer.Granted = userID, granted
	out, done, err = h.judged.Accept(dst)
	out, err = h.advance(dst, out, done, err)
	if err != nil {
		h.fail(err)
	}
	return out, h.done, err
}

// Deny ends the handshake of a peer whose credentials were waiting to be
// judged. status is one of the Status constants; for [StatusDenied] and
// [StatusFailed] out has the ERROR to send, with the status as its reason, as
// libzmq does. A peer denied with any other status is told nothing. The error
// Is ErrDenied, with the status as its Reason; the connection must be closed.
func (h *Handshake) Deny(dst []byte, status string) (out []byte, err error) {
	if h.err != nil || h.done || !h.waiting {
		return dst, h.err
	}
	h.waiting = false
	h.fail(&ProtocolError{Op: "handshake", Reason: status, Err: ErrDenied})
	if status == StatusDenied || status == StatusFailed {
		dst = h.judged.Refuse(dst, status)
	}
	return dst, h.err
}
