package zmtp

// SocketType is the type of the socket at one end of a connection. The numbers
// are those of libzmq.
type SocketType uint8

// The socket types of RFC 37. TypeUnknown is the type of a peer that has not announced
// its type.
const (
	TypePair SocketType = iota
	TypePub
	TypeSub
	TypeReq
	TypeRep
	TypeDealer
	TypeRouter
	TypePull
	TypePush
	TypeXPub
	TypeXSub

	// TypeStream is the type of a socket for raw TCP. Such a socket does not speak
	// ZMTP, so it has no handshake and is not compatible with any type.
	TypeStream

	TypeUnknown SocketType = 255
)

var socketTypeNames = [...]string{
	TypePair: "PAIR", TypePub: "PUB", TypeSub: "SUB", TypeReq: "REQ", TypeRep: "REP", TypeDealer: "DEALER",
	TypeRouter: "ROUTER", TypePull: "PULL", TypePush: "PUSH", TypeXPub: "XPUB", TypeXSub: "XSUB",
}

// compatible holds, for each type, the set of types with which it can
// communicate (RFC 37, section "The Socket-Type Property"). DEALER with DEALER
// is allowed there, but not in RFC 28.
var compatible = [...]uint16{
	TypePair:   1 << TypePair,
	TypePub:    1<<TypeSub | 1<<TypeXSub,
	TypeSub:    1<<TypePub | 1<<TypeXPub,
	TypeReq:    1<<TypeRep | 1<<TypeRouter,
	TypeRep:    1<<TypeReq | 1<<TypeDealer,
	TypeDealer: 1<<TypeRep | 1<<TypeDealer | 1<<TypeRouter,
	TypeRouter: 1<<TypeReq | 1<<TypeDealer | 1<<TypeRouter,
	TypePull:   1 << TypePush,
	TypePush:   1 << TypePull,
	TypeXPub:   1<<TypeSub | 1<<TypeXSub,
	TypeXSub:   1<<TypePub | 1<<TypeXPub,
}

// String returns the name of the type as in the Socket-Type property, or
// "UNKNOWN".
func (t SocketType) String() string {
	switch {
	case int(t) < len(socketTypeNames):
		return socketTypeNames[t]
	case t == TypeStream:
		return "STREAM"
	}
	return "UNKNOWN"
}

// MarshalText returns the text of String.
func (t SocketType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// ParseSocketType returns the type with the given name, in capital letters as
// on the wire. For an unknown name it returns TypeUnknown and an error that matches
// ErrIncompatible.
func ParseSocketType(name []byte) (SocketType, error) {
	for i, s := range socketTypeNames {
		if s == string(name) {
			return SocketType(i), nil
		}
	}
	return TypeUnknown, &ProtocolError{Op: "metadata", Reason: "unknown socket type", Err: ErrIncompatible}
}

// Compatible reports whether sockets of types a and b can communicate. It is
// symmetric. TypeUnknown is not compatible with any type.
func Compatible(a, b SocketType) bool {
	return int(a) < len(compatible) && int(b) < len(compatible) && compatible[a]&(1<<b) != 0
}

// sendsIdentity reports whether a socket of type t announces an Identity, even
// if it is empty, as in libzmq.
func (t SocketType) sendsIdentity() bool {
	return t == TypeReq || t == TypeDealer || t == TypeRouter
}
