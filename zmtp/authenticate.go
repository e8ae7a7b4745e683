package zmtp

// Credentials are the credentials with which a peer authenticates itself. The caller of a
// [Handshake] checks them.
type Credentials struct {
	// Mechanism is the security mechanism: "NULL", "PLAIN" or "CURVE".
	Mechanism string
	// Values is empty for NULL. For PLAIN it is the user name and the password,
	// of at most 255 bytes each. For CURVE it is the client's long-term public
	// key of 32 bytes, which the client has proved to own. The caller owns it.
	Values [][]byte
	// Identity is the identity that the peer announced, of at most 255 bytes. It
	// is nil with NULL and PLAIN, where the peer sends its properties only after
	// it has been accepted.
	Identity []byte
}

// AuthMechanism is a [Mechanism] that pauses until the caller has checked the
// peer's credentials.
type AuthMechanism interface {
	Mechanism
	// Credentials returns a copy of the peer's credentials, and whether the
	// mechanism is waiting for Accept or Refuse.
	Credentials() (values [][]byte, waiting bool)
	// Accept accepts the peer and appends the frames to send. The results are
	// those of Step.
	Accept(dst []byte) (out []byte, done bool, err error)
	// Refuse appends an ERROR with the given reason, of at most 255 bytes.
	Refuse(dst []byte, reason string) []byte
}

// Credentials returns the credentials that the caller must check, and whether
// there are any. If so, Step consumes nothing until [Handshake.Accept] or
// [Handshake.Deny] has been called. Call Credentials after each Step that has
// returned neither done nor an error.
func (h *Handshake) Credentials() (Credentials, bool) {
	if !h.waiting {
		return Credentials{}, false
	}
	values, waiting := h.auth.Credentials()
	return Credentials{Mechanism: h.mechanism.Name(), Values: values, Identity: announcedIdentity(h.mechanism.Peer())}, waiting
}

// announcedIdentity returns a copy of the identity among a peer's properties,
// or nil if there is none or accept would ignore or refuse it.
func announcedIdentity(m Metadata) []byte {
	identity, ok := m.Get(PropertyIdentity)
	name, told := m.Get(PropertySocketType)
	t, err := ParseSocketType(name)
	if !ok || len(identity) > shortBody || told && (err != nil || !t.sendsIdentity()) {
		return nil
	}
	return append(make([]byte, 0, len(identity)), identity...)
}

// Accept accepts the peer whose credentials were waiting to be checked. userID
// and granted, which may come from a ZAP handler, are stored in [Peer]. The
// results are those of [Handshake.Step]. Unless done or an error is returned,
// continue with Step, starting with the bytes already received. Accept does
// nothing if no credentials are waiting.
func (h *Handshake) Accept(dst []byte, userID string, granted Metadata) (out []byte, done bool, err error) {
	if h.err != nil || h.done || !h.waiting {
		return dst, h.done, h.err
	}
	h.waiting = false
	h.peer.UserID, h.peer.Granted = userID, granted
	out, done, err = h.auth.Accept(dst)
	out, err = h.advance(dst, out, done, err)
	if err != nil {
		h.fail(err)
	}
	return out, h.done, err
}

// Deny refuses the peer whose credentials were waiting to be checked, and ends
// the handshake. status is one of the Status constants. For [StatusDenied] and
// [StatusFailed], out contains an ERROR to send, with the status as its reason,
// as in libzmq; for other statuses nothing is sent. The error matches ErrDenied
// and has the status as its Reason. The caller must close the connection.
func (h *Handshake) Deny(dst []byte, status string) (out []byte, err error) {
	if h.err != nil || h.done || !h.waiting {
		return dst, h.err
	}
	h.waiting = false
	h.fail(&ProtocolError{Op: "handshake", Reason: status, Err: ErrDenied})
	if status == StatusDenied || status == StatusFailed {
		dst = h.auth.Refuse(dst, status)
	}
	return dst, h.err
}
