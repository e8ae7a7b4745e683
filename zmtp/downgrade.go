package zmtp

import (
	"errors"
	"strconv"
)

// This file handles the first bytes of a connection, which depend on the peer's
// version. We fall back to ZMTP 2.0 and 1.0 as libzmq does: we send our greeting
// in three pieces, each of which is understood by every peer that can still be on
// the other end.
//
//   - The first 10 bytes are sent at once. For a ZMTP 1.0 peer they are the
//     header of a long frame that contains our identity.
//   - Byte 10, our major version, is sent when the peer's first 10 bytes are a
//     signature. A peer of ZMTP 2.0 or 3 may wait for it.
//   - The rest is sent when the peer's byte 10 tells which version it speaks: the
//     other 53 bytes of ZMTP 3, or a socket type and an identity.
//
// A connection that does not accept versions below 3.0 sends all 64 bytes at once.

// wireVersion is a peer's version as detected from its first bytes.
type wireVersion uint8

const (
	undecided      wireVersion = iota // more bytes are needed
	zmtp10                            // no signature: the bytes are the start of an identity
	zmtp10Revised                     // a signature and revision 0: ZMTP 1.0 framing
	zmtp20                            // revision 1
	zmtp3                             // anything else; libzmq takes revision 2 for 3.1
	revision10     = 0
	revision20     = 1
	oldGreeting    = greetingMajor + 2 // bytes of one of zmtp10Revised and zmtp20
	oldestAccepted = 1
)

// detectVersion returns the version of the peer that sent b.
func detectVersion(b []byte) wireVersion {
	switch {
	case len(b) == 0:
		return undecided
	case b[0] != 0xFF:
		return zmtp10
	case len(b) <= greetingSignature:
		return undecided
	case b[greetingSignature]&1 == 0:
		return zmtp10
	case len(b) <= greetingMajor:
		return undecided
	case b[greetingMajor] == revision10:
		return zmtp10Revised
	case b[greetingMajor] == revision20:
		return zmtp20
	}
	return zmtp3
}

// major returns the major version number.
func (v wireVersion) major() uint8 {
	switch v {
	case zmtp10, zmtp10Revised:
		return 1
	case zmtp20:
		return 2
	}
	return Major
}

// below returns the error for a peer that speaks v if the major version must be
// at least the given one.
func (v wireVersion) below(least uint8) error {
	if v == zmtp10 {
		return oldVersion("no signature: ZMTP 1.0, or not ZMTP")
	}
	return oldVersion("older than " + strconv.Itoa(int(least)) + ".0")
}

// hello returns the bytes of our greeting.
func (h *Handshake) hello() (b [GreetingSize]byte) {
	AppendGreeting(b[:0], Greeting{Major: Major, Minor: Minor, Mechanism: h.mechanism.Name(), AsServer: h.mechanism.AsServer()})
	if h.minVersion <= oldestAccepted {
		// The length of a ZMTP 1.0 frame that contains our identity. The higher
		// bytes are zero, because an identity has at most 255 bytes.
		length := len(h.identity) + 1
		b[greetingSignature-2], b[greetingSignature-1] = byte(length>>8), byte(length)
	}
	return b
}

// say appends the part of our greeting before the given offset that has not
// been sent yet.
func (h *Handshake) say(dst []byte, end int) []byte {
	if end > h.said {
		hello := h.hello()
		dst = append(dst, hello[h.said:end]...)
		h.said = end
	}
	return dst
}

// mustAuthenticate reports whether the peer must be authenticated, even if it has no
// credentials.
func (h *Handshake) mustAuthenticate() bool {
	if h.auth == nil {
		return false
	}
	_, waiting := h.auth.Credentials()
	return waiting
}

// startSize returns how many bytes of our greeting are sent before anything is
// received.
func (h *Handshake) startSize() int {
	switch h.minVersion {
	case 1:
		return greetingSignature + 1
	case 2:
		return greetingMajor + 1
	}
	return GreetingSize
}

// negotiate determines the peer's version from its first bytes, in, and appends
// as much of our greeting as they allow. For versions before 3.0 downgrade does
// the rest.
func (h *Handshake) negotiate(in, dst []byte) (out []byte, v wireVersion, err error) {
	v = detectVersion(in)
	if v == undecided {
		if len(in) > greetingSignature {
			dst = h.say(dst, greetingMajor+1)
		}
		return dst, v, nil
	}
	if v.major() < h.minVersion {
		return dst, v, v.below(h.minVersion)
	}
	if v == zmtp3 {
		dst = h.say(dst, GreetingSize)
	}
	return dst, v, nil
}

// downgrade performs the whole handshake with a peer of ZMTP 1.0 or 2.0: each
// side sends its socket type, unless there is no signature, and its identity in
// a frame.
func (h *Handshake) downgrade(in, dst []byte, v wireVersion) (int, []byte, error) {
	frame := in
	if v != zmtp10 {
		frame = in[min(len(in), oldGreeting):]
	}
	t := TypeUnknown
	if v != zmtp10 && len(in) >= oldGreeting {
		if t = SocketType(in[oldGreeting-1]); !Compatible(h.socketType, t) {
			return 0, dst, &ProtocolError{Op: "greeting", Reason: "socket type does not fit " + h.socketType.String(), Err: ErrIncompatible}
		}
	}
	codec := newOldCodec(v, h.maxMessage)
	head, whole, err := codec.identityHeader(frame, v)
	if err != nil {
		return 0, dst, err
	}
	if !h.answered {
		h.answered = true
		dst = h.sayOld(dst, v, codec)
	}
	end := head.size + head.body
	if !whole || len(frame) < end {
		return 0, dst, nil
	}
	h.peer = Peer{Major: v.major(), SocketType: t}
	if t == TypeUnknown || t.sendsIdentity() {
		h.peer.Identity = append(make([]byte, 0, head.body), frame[head.size:end]...)
	}
	h.codec, h.done = codec, true
	return len(in) - len(frame) + end, dst, nil
}

// sayOld appends the bytes for a peer of an old version, which replace the rest of a
// greeting.
func (h *Handshake) sayOld(dst []byte, v wireVersion, c *oldCodec) []byte {
	if v == zmtp10 {
		return append(dst, h.identity...) // our first 10 bytes were its header
	}
	dst = append(h.say(dst, greetingMajor+1), byte(h.socketType))
	return append(c.begin(dst, 0, len(h.identity)), h.identity...)
}

// identityHeader reads the header of the frame that contains a peer's identity.
//
// Without a signature, this header is the only way to distinguish ZMTP 1.0 from
// other protocols such as HTTP or TLS. So reserved bits, which are ignored
// later, must be zero there, as they are with every known peer.
func (c *oldCodec) identityHeader(b []byte, v wireVersion) (h header, ok bool, err error) {
	h, ok, err = c.parse(b)
	flags := byte(0)
	if v == zmtp10 && ok {
		flags = b[h.size-1]
	}
	// In ZMTP 2.0 the flags come first. The error for invalid flags must not
	// depend on whether the size has arrived too.
	more := v == zmtp20 && h.flags&(FlagMore|FlagCommand) == FlagMore
	switch {
	case v == zmtp10 && (err != nil || flags != 0):
		return h, false, oldVersion("not ZMTP")
	case errors.Is(err, ErrMalformed) && !more:
		return h, false, err
	case h.flags&FlagMore != 0:
		return h, false, malformed("greeting", "identity with MORE")
	case err != nil, ok && h.body > shortBody: // err: the size does not even fit in an int
		return h, false, malformed("greeting", "identity over 255 bytes")
	}
	return h, ok, nil
}
