package zmtp

// SocketType is the type of the socket at one end of a connection. The numbers
// are those of libzmq.
type SocketType uint8

// The socket types of RFC 37. UNKNOWN is the type of a peer that has not announced
// its type.
const (
	PAIR SocketType = iota
	PUB
	SUB
	REQ
	REP
	DEALER
	ROUTER
	PULL
	PUSH
	XPUB
	XSUB

	UNKNOWN SocketType = 255
)

var socketTypeNames = [...]string{
	PAIR: "PAIR", PUB: "PUB", SUB: "SUB", REQ: "REQ", REP: "REP", DEALER: "DEALER",
	ROUTER: "ROUTER", PULL: "PULL", PUSH: "PUSH", XPUB: "XPUB", XSUB: "XSUB",
}

// compatible holds, for each type, the set of types with which it can
// communicate (RFC 37, section "The Socket-Type Property"). DEALER with DEALER
// is allowed there, but not in RFC 28.
var compatible = [...]uint16{
	PAIR:   1 << PAIR,
	PUB:    1<<SUB | 1<<XSUB,
	SUB:    1<<PUB | 1<<XPUB,
	REQ:    1<<REP | 1<<ROUTER,
	REP:    1<<REQ | 1<<DEALER,
	DEALER: 1<<REP | 1<<DEALER | 1<<ROUTER,
	ROUTER: 1<<REQ | 1<<DEALER | 1<<ROUTER,
	PULL:   1 << PUSH,
	PUSH:   1 << PULL,
	XPUB:   1<<SUB | 1<<XSUB,
	XSUB:   1<<PUB | 1<<XPUB,
}

// String returns the name of the type as in the Socket-Type property, or
// "UNKNOWN".
func (t SocketType) String() string {
	if int(t) < len(socketTypeNames) {
		return socketTypeNames[t]
	}
	return "UNKNOWN"
}

// ParseSocketType returns the type with the given name, in capital letters as
// on the wire. For an unknown name it returns UNKNOWN and an error that matches
// ErrIncompatible.
func ParseSocketType(name []byte) (SocketType, error) {
	for i, s := range socketTypeNames {
		if s == string(name) {
			return SocketType(i), nil
		}
	}
	return UNKNOWN, &ProtocolError{Op: "metadata", Reason: "unknown socket type", Err: ErrIncompatible}
}

// Compatible reports whether sockets of types a and b can communicate. It is
// symmetric. UNKNOWN is not compatible with any type.
func Compatible(a, b SocketType) bool {
	return int(a) < len(compatible) && int(b) < len(compatible) && compatible[a]&(1<<b) != 0
}

// sendsIdentity reports whether a socket of type t announces an Identity, even
// if it is empty, as in libzmq.
func (t SocketType) sendsIdentity() bool {
	return t == REQ || t == DEALER || t == ROUTER
}
