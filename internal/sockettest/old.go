package sockettest

import (
	"context"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// Version is a version that a scripted peer plays.
type Version string

const (
	ZMTP10        Version = "1.0"
	ZMTP10Revised Version = "1.0 with revision"
	ZMTP20        Version = "2.0"
	ZMTP30        Version = "3.0"
)

// Hello is the bytes that the peer sends unasked, in the pieces in which libzmq of that
// version sends it: each once it has read so much of our greeting.
func (v Version) Hello(kind zmtp.SocketType, identity string) []string {
	signature := "\xff\x00\x00\x00\x00\x00\x00\x00" + string([]byte{byte(len(identity) + 1)}) + "\x7f"
	number := string([]byte{byte(kind)})
	switch v {
	case ZMTP10:
		return []string{v.Message(identity)}
	case ZMTP10Revised:
		return []string{signature, "\x00" + number, v.Message(identity)}
	case ZMTP20:
		return []string{signature, "\x01" + number, v.Message(identity)}
	}
	g := string(Greeting(0))
	r := Ready(kind.String(), []byte(identity))
	return []string{g[:10], g[10:11], g[11:], string(r)}
}

// Message is a message in the version's framing.
func (v Version) Message(frames ...string) string {
	var b []byte
	for i, f := range frames {
		more := byte(0)
		if i < len(frames)-1 {
			more = 1
		}
		switch {
		case (v == ZMTP20 || v == ZMTP30) && len(f) < 256:
			b = append(b, more, byte(len(f)))
		case v == ZMTP20 || v == ZMTP30:
			b = append(b, more|2, 0, 0, 0, 0, byte(len(f)>>24), byte(len(f)>>16), byte(len(f)>>8), byte(len(f)))
		case len(f) < 254:
			b = append(b, byte(len(f)+1), more)
		default:
			n := len(f) + 1
			b = append(b, 0xFF, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n), more)
		}
		b = append(b, f...)
	}
	return string(b)
}

// Expected is all that a peer of the version is sent before any traffic, by a
// socket with the given identity.
func (v Version) Expected(kind zmtp.SocketType, identity string) string {
	signature := "\xff\x00\x00\x00\x00\x00\x00\x00" + string([]byte{byte(len(identity) + 1)}) + "\x7f"
	number := string([]byte{byte(kind)})
	switch v {
	case ZMTP10:
		return signature + identity
	case ZMTP10Revised, ZMTP20:
		return signature + "\x03" + number + v.Message(identity)
	}
	g := string(Greeting(1))
	properties := zmtp.AppendProperty(nil, "Socket-Type", []byte(kind.String()))
	if kind == zmtp.TypeDealer || kind == zmtp.TypeRouter || kind == zmtp.TypeReq {
		properties = zmtp.AppendProperty(properties, "Identity", []byte(identity))
	}
	return signature + g[10:] + string(zmtp.AppendCommand(nil, "READY", properties))
}

// Link is one version, one pair of types, and the side that binds.
type Link struct {
	Version Version
	Binds   bool // we do
}

func Links() (all []Link) {
	for _, v := range []Version{ZMTP10, ZMTP10Revised, ZMTP20, ZMTP30} {
		all = append(all, Link{v, true}, Link{v, false})
	}
	return all
}

func (c Link) String() string {
	if c.Binds {
		return string(c.Version) + ", we bind"
	}
	return string(c.Version) + ", we connect"
}

// Join joins our socket with a scripted peer and does the handshake, byte by
// byte and with every byte compared.
func (c Link) Join(t testing.TB, s interface {
	Bind(context.Context, string) error
	Connect(string) error
	LastEndpoint() string
}, kind zmtp.SocketType, identity string, theirs zmtp.SocketType, theirIdentity string) *Peer {
	t.Helper()
	var r *Peer
	if c.Binds {
		testenv.Must(t, s.Bind(testenv.Context(t), testenv.AnyPort))
		r = Dial(t, s.LastEndpoint())
	} else {
		endpoint, accept := Listen(t)
		testenv.Must(t, s.Connect(endpoint))
		r = accept()
	}
	want := c.Version.Expected(kind, identity)
	// A peer waits for as much as libzmq's of its version does before it goes
	// on: nothing, the signature, the byte behind it.
	waits := []int{0, 10, 1, len(want) - 11}
	read := 0
	for i, piece := range c.Version.Hello(theirs, theirIdentity) {
		if c.Version != ZMTP10 {
			n := waits[i]
			if i == 3 {
				n = len(Greeting(1)) - read // READY follows whole greetings
			}
			r.Wants(want[read : read+n])
			read += n
		}
		r.Slowly(piece)
	}
	r.Wants(want[read:])
	return r
}
