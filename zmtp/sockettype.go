package zmtp

// SocketType is the kind of socket at one end of a connection. The numbers are
// libzmq's.
type SocketType uint8

// The socket types of RFC 37. UNKNOWN stands for a peer that did not announce
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

// compatible holds, for each type, the set of types that it can talk to (RFC
// 37, The Socket-Type Property; DEALER with DEALER as there, though not in RFC
// 28).
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

// String returns the name as it stands in the Socket-Type property, or
// "UNKNOWN".
func (t SocketType) String() string {
	if int(t) < len(socketTypeNames) {
		return socketTypeNames[t]
	}
	return "UNKNOWN"
}

// ParseSocketType returns the type with the given name, in capitals as on the
// wire. For any other bytes it returns UNKNOWN and an error that Is
// ErrIncompatible.
func ParseSocketType(name []byte) (SocketType, error) {
	for i, s := range socketTypeNames {
		if s == string(name) {
			return SocketType(i), nil
		}
	}
	return UNKNOWN, &ProtocolError{Op: "metadata", Reason: "socket type not known", Err: ErrIncompatible}
}

// Compatible reports whether sockets of types a and b may be connected. It is
// symmetric. UNKNOWN is compatible with none.
func Compatible(a, b SocketType) bool {
	return int(a) < len(compatible) && int(b) < len(compatible) && compatible[a]&(1<<b) != 0
}

// sendsIdentity reports whether a socket of type t announces an Identity, be
// it empty, as libzmq does.
func (t SocketType) sendsIdentity() bool {
	return t == REQ || t == DEALER || t == ROUTER
}
