package zmtp

// Names of the commands of the PLAIN and CURVE handshakes, in addition to READY and
// ERROR.
const (
	commandHello    = "HELLO"
	commandWelcome  = "WELCOME"
	commandInitiate = "INITIATE"
)

// exchange is the common part of the mechanisms, which exchange commands in a
// fixed order.
type exchange struct {
	want string // name of the peer's next command; empty if there is none
	peer Metadata
}

// expect returns an error if c is not the expected command.
func (x *exchange) expect(c Command) error {
	name := string(c.Name)
	if name == x.want {
		return nil
	}
	want := x.want
	if want == "" {
		want = "nothing"
	}
	switch name {
	case commandHello, commandWelcome, commandInitiate, CommandReady, CommandError, commandMessage:
		return malformed("handshake", name+" instead of "+want)
	}
	return malformed("handshake", "command that is not "+want)
}

// AsServer returns false: this is not a server.
func (x *exchange) AsServer() bool { return false }

// Peer returns the properties that the peer has sent, or nil before that.
func (x *exchange) Peer() Metadata { return x.peer }

// Codec returns nil, because the traffic is plain frames.
func (x *exchange) Codec() Codec { return nil }

// Abandon does nothing, because there are no keys.
func (x *exchange) Abandon() {}

// serving is the common part of the servers.
type serving struct {
	exchange
	credentials [][]byte
	waiting     bool // for Accept or Refuse
}

// AsServer returns true.
func (s *serving) AsServer() bool { return true }

// Credentials returns the credentials that the client has sent, and whether the mechanism
// is waiting for Accept or Refuse: with PLAIN, after HELLO, the user name and the
// password; with CURVE, after INITIATE, the client's long-term public key.
func (s *serving) Credentials() (values [][]byte, waiting bool) { return s.credentials, s.waiting }

// Abandon drops the credentials.
func (s *serving) Abandon() { s.credentials = nil }

// maxCommand limits HELLO, but not INITIATE, which carries the properties.
func (s *serving) maxCommand() int {
	if s.want == commandHello {
		return maxHello
	}
	return 0
}
