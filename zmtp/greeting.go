package zmtp

import "bytes"

// GreetingSize is the size of a greeting in bytes (RFC 37, section "Formal
// Grammar").
const GreetingSize = 64

// The version of ZMTP that this package implements.
const (
	Major = 3
	Minor = 1
)

// Offsets of the fields of a greeting.
const (
	greetingSignature = 9 // last byte of the signature
	greetingMajor     = 10
	greetingMinor     = 11
	greetingMechanism = 12
	greetingAsServer  = 32
)

// Greeting is the first thing that each side sends.
type Greeting struct {
	Major, Minor uint8
	Mechanism    string // name of the security mechanism; at most 20 bytes are sent
	AsServer     bool   // for information only; libzmq neither sets nor reads it
}

// AppendGreeting appends the 64 bytes of g to dst.
func AppendGreeting(dst []byte, g Greeting) []byte {
	var b [GreetingSize]byte
	b[0], b[greetingSignature] = 0xFF, 0x7F
	// For ZMTP 1.0 peers, libzmq puts the size of the identity plus one here.
	// Receivers must not check these bytes.
	b[greetingSignature-1] = 1
	b[greetingMajor], b[greetingMinor] = g.Major, g.Minor
	copy(b[greetingMechanism:greetingAsServer], g.Mechanism)
	if g.AsServer {
		b[greetingAsServer] = 1
	}
	return append(dst, b[:]...)
}

// ParseGreeting parses the greeting at the start of b and returns its size, 64.
// If n is 0 and err is nil, more bytes are needed.
//
// If the peer speaks a version before 3.0 or another protocol, the error
// matches ErrVersion and is returned as soon as the first bytes show it;
// [Handshake] can fall back to older versions. ParseGreeting accepts higher
// versions, because such peers adapt to ours. It also accepts the major version
// 2, which libzmq treats as 3.1; ZMTP 2.0 announces 1 in its place, and ZMTP
// 1.0 announces 0 or nothing. The mechanism is returned without trailing zeros.
// Padding and filler are ignored.
func ParseGreeting(b []byte) (g Greeting, n int, err error) {
	if v := detectVersion(b); v.major() < Major {
		return g, 0, v.below(Major)
	}
	if len(b) < GreetingSize {
		return g, 0, nil
	}
	return Greeting{
		Major:     b[greetingMajor],
		Minor:     b[greetingMinor],
		Mechanism: string(bytes.TrimRight(b[greetingMechanism:greetingAsServer], "\x00")),
		AsServer:  b[greetingAsServer]&1 != 0,
	}, GreetingSize, nil
}

func oldVersion(reason string) error {
	return &ProtocolError{Op: "greeting", Reason: reason, Err: ErrVersion}
}
