package zmtp

import "bytes"

// GreetingSize is the number of bytes of a greeting (RFC 37, Formal
// Grammar).
const GreetingSize = 64

// The version that this package speaks.
const (
	Major = 3
	Minor = 1
)

// Where the fields of a greeting are.
const (
	greetingSignature = 9 // last byte of the signature
	greetingMajor     = 10
	greetingMinor     = 11
	greetingMechanism = 12
	greetingAsServer  = 32
)

// Greeting is what each side sends first.
type Greeting struct {
	Major, Minor uint8
	Mechanism    string // of the name at most 20 bytes are sent
	AsServer     bool   // informative; libzmq neither sets nor reads it
}

// AppendGreeting appends the 64 bytes of g.
func AppendGreeting(dst []byte, g Greeting) []byte {
	var b [GreetingSize]byte
	b[0], b[greetingSignature] = 0xFF, 0x7F
	// libzmq puts the size of an identity, plus one, here, for ZMTP 1.0
	// peers; the bytes must not be validated by anybody.
	b[greetingSignature-1] = 1
	b[greetingMajor], b[greetingMinor] = g.Major, g.Minor
	copy(b[greetingMechanism:greetingAsServer], g.Mechanism)
	if g.AsServer {
		b[greetingAsServer] = 1
	}
	return append(dst, b[:]...)
}

// ParseGreeting parses the greeting at the start of b and returns its size,
// 64. With n == 0 and no error more bytes are needed. The error for a peer
// that is older than 3.0, or speaks no ZMTP, comes as soon as the first bytes
// tell, and Is ErrVersion; [Handshake] knows how to talk to older ones. Higher
// versions are accepted: they adapt to ours. So is a Major of 2, which libzmq
// takes for 3.1: ZMTP 2.0 announces 1 there, and 1.0, if anything, 0.
// Mechanism is the name without the zeros behind it. Padding and filler may
// hold anything.
func ParseGreeting(b []byte) (g Greeting, n int, err error) {
	switch detectVersion(b) {
	case zmtp10:
		return g, 0, oldVersion("no signature: ZMTP 1.0, or no ZMTP")
	case zmtp10Revised, zmtp20:
		return g, 0, oldVersion("older than 3.0")
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
