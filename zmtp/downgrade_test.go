package zmtp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const (
	signature = "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
	// sigAs is our signature with the length of the identity "me".
	sigAs = "\xff\x00\x00\x00\x00\x00\x00\x00\x03\x7f"
)

// TestDowngrade runs a handshake with every kind of old peer, split at every offset,
// and compares all bytes sent.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("i", 255)
	for _, c := range []struct {
		name string
		us   SocketType
		in   string
		want Peer
		sent string // after our signature
		wire string // the message "m" in the peer's framing
	}{
		{"1.0, no identity", TypeRouter, "\x01\x00", Peer{Major: 1, SocketType: TypeUnknown, Identity: []byte{}}, "me", "\x02\x00m"},
		{"1.0, identity", TypeDealer, "\x05\x00peer", Peer{Major: 1, SocketType: TypeUnknown, Identity: []byte("peer")}, "me", "\x02\x00m"},
		{"1.0, long form", TypeRouter, "\xff\x00\x00\x00\x00\x00\x00\x00\x05\x00peer", Peer{Major: 1, SocketType: TypeUnknown, Identity: []byte("peer")}, "me", "\x02\x00m"},
		{"1.0, longest identity", TypeRouter, "\xff\x00\x00\x00\x00\x00\x00\x01\x00\x00" + long, Peer{Major: 1, SocketType: TypeUnknown, Identity: []byte(long)}, "me", "\x02\x00m"},
		{"1.0, PUB has no identity to tell", TypePub, "\x01\x00", Peer{Major: 1, SocketType: TypeUnknown, Identity: []byte{}}, "", "\x02\x00m"},
		{"revision 0", TypeRouter, signature + "\x00\x05\x01\x00", Peer{Major: 1, SocketType: TypeDealer, Identity: []byte{}}, "\x03\x06\x03\x00me", "\x02\x00m"},
		{"revision 0, identity", TypeDealer, signature + "\x00\x06\x05\x00peer", Peer{Major: 1, SocketType: TypeRouter, Identity: []byte("peer")}, "\x03\x05\x03\x00me", "\x02\x00m"},
		{"revision 0, reserved bits", TypeRep, signature + "\x00\x03\x05\xfepeer", Peer{Major: 1, SocketType: TypeReq, Identity: []byte("peer")}, "\x03\x04\x01\x00", "\x02\x00m"},
		{"2.0", TypeRouter, signature + "\x01\x05\x00\x00", Peer{Major: 2, SocketType: TypeDealer, Identity: []byte{}}, "\x03\x06\x00\x02me", "\x00\x01m"},
		{"2.0, identity", TypeReq, signature + "\x01\x06\x00\x04peer", Peer{Major: 2, SocketType: TypeRouter, Identity: []byte("peer")}, "\x03\x03\x00\x02me", "\x00\x01m"},
		{"2.0, long form", TypeRouter, signature + "\x01\x06\x02\x00\x00\x00\x00\x00\x00\x00\x04peer", Peer{Major: 2, SocketType: TypeRouter, Identity: []byte("peer")}, "\x03\x06\x00\x02me", "\x00\x01m"},
		{"2.0, identity of a SUB", TypePub, signature + "\x01\x02\x00\x04peer", Peer{Major: 2, SocketType: TypeSub}, "\x03\x01\x00\x00", "\x00\x01m"},
		{"2.0, XSUB", TypeXPub, signature + "\x01\x0a\x00\x00", Peer{Major: 2, SocketType: TypeXSub}, "\x03\x09\x00\x00", "\x00\x01m"},
		{"2.0, padding", TypePull, "\xffanything\x01\x01\x08\x00\x00", Peer{Major: 2, SocketType: TypePush}, "\x03\x07\x00\x00", "\x00\x01m"},
	} {
		for piece := 1; piece <= len(c.in); piece++ {
			h := NewHandshake(HandshakeConfig{SocketType: c.us, Identity: []byte("me"), MinVersion: 1})
			want := signature
			if c.us.sendsIdentity() {
				want = sigAs
			}
			if got := h.Start([]byte("x")); string(got) != "x"+want {
				t.Fatalf("%s: begins with %x", c.name, got)
			}
			out, rest, done, err := step(h, c.in+c.wire, piece)
			if !done || err != nil || rest != c.wire || string(out) != c.sent {
				t.Fatalf("%s, pieces of %d: done %v, %v, sent %q, rest %q", c.name, piece, done, err, out, rest)
			}
			p := h.Peer()
			if p.Major != c.want.Major || p.Minor != 0 || p.SocketType != c.want.SocketType || p.Metadata != nil ||
				!bytes.Equal(p.Identity, c.want.Identity) || (p.Identity == nil) != (c.want.Identity == nil) {
				t.Errorf("%s: peer %+v, want %+v", c.name, p, c.want)
			}
			if p.TakesCommands() || p.TakesSubscribe() || p.SendsSubscriptions() != (c.want.SocketType != TypeUnknown) {
				t.Errorf("%s: %v %v %v", c.name, p.TakesCommands(), p.TakesSubscribe(), p.SendsSubscriptions())
			}
			codec := h.Codec()
			got, used, _, err := codec.Decode(nil, []byte(rest), 100)
			if string(got) != "\x00\x01m" || used != len(rest) || err != nil {
				t.Errorf("%s: %x %d %v", c.name, got, used, err)
			}
			got, err = codec.Encode(nil, []byte("\x00\x01m"))
			if string(got) != c.wire || err != nil {
				t.Errorf("%s: %x %v", c.name, got, err)
			}
		}
	}
}

// TestDowngradeOrder checks, byte by byte, when each part of our greeting is sent:
// a peer may wait for each part (RFC 37, Version Negotiation), and no part is sent
// that a peer of the version seen so far would not understand.
func TestDowngradeOrder(t *testing.T) {
	t.Parallel()
	g3 := greetingBytes
	old := strings.Replace(g3, "\x01\x7f", "\x03\x7f", 1) // with the length of "me"
	ready := string(AppendCommand(nil, CommandReady, AppendProperty(nil, PropertySocketType, []byte("ROUTER"))))
	our := func(h HandshakeConfig) string {
		return string(AppendCommand(nil, CommandReady, h.AppendProperties(nil)))
	}
	for _, c := range []struct {
		name string
		min  uint8
		in   string
		sent map[int]string // how much was sent after so many bytes of in, from there on
	}{
		{"3.1", 1, g3 + ready, map[int]string{0: old[:10], 10: old[:11], 11: old, 64: old + our(HandshakeConfig{SocketType: TypeDealer, Identity: []byte("me")})}},
		{"3.1, not below 2", 2, g3 + ready, map[int]string{0: g3[:11], 11: g3, 64: g3 + our(HandshakeConfig{SocketType: TypeDealer, Identity: []byte("me")})}},
		{"3.1, not below 3", 3, g3 + ready, map[int]string{0: g3, 64: g3 + our(HandshakeConfig{SocketType: TypeDealer, Identity: []byte("me")})}},
		{"2.0", 1, signature + "\x01\x06\x00\x00", map[int]string{0: old[:10], 10: old[:11], 11: old[:11] + "\x05\x00\x02me"}},
		{"2.0, not below 2", 2, signature + "\x01\x06\x00\x00", map[int]string{0: g3[:11], 11: g3[:11] + "\x05\x00\x02me"}},
		{"revision 0", 1, signature + "\x00\x06\x01\x00", map[int]string{0: old[:10], 10: old[:11], 11: old[:11] + "\x05\x03\x00me"}},
		{"1.0", 1, "\x01\x00", map[int]string{0: old[:10], 1: old[:10] + "me"}},
		{"1.0, long form", 1, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00", map[int]string{0: old[:10], 10: old[:10] + "me"}},
	} {
		h := NewHandshake(HandshakeConfig{SocketType: TypeDealer, Identity: []byte("me"), MinVersion: c.min})
		out := h.Start(nil)
		start, want, ended := 0, "", false
		for i := 0; i <= len(c.in); i++ {
			for !ended {
				var n int
				var err error
				n, out, ended, err = h.Step([]byte(c.in[start:i]), out)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				if start += n; n == 0 {
					break
				}
			}
			if s, ok := c.sent[i]; ok {
				want = s
			}
			if string(out) != want {
				t.Fatalf("%s: after %d bytes %q was sent, want %q", c.name, i, out, want)
			}
		}
		if !ended {
			t.Errorf("%s: not done", c.name)
		}
	}
}

// TestDowngradeErrors checks which peers are refused, and after how many bytes.
func TestDowngradeErrors(t *testing.T) {
	t.Parallel()
	curve := named{"CURVE"}
	for _, c := range []struct {
		name   string
		config HandshakeConfig
		in     string
		want   error
	}{
		{"HTTP", HandshakeConfig{MinVersion: 1}, "GE", ErrVersion},
		{"TLS", HandshakeConfig{MinVersion: 1}, "\x16\x03", ErrVersion},
		{"SSH", HandshakeConfig{MinVersion: 1}, "SS", ErrVersion},
		{"zeros", HandshakeConfig{MinVersion: 1}, "\x00", ErrVersion},
		{"identity with MORE", HandshakeConfig{MinVersion: 1}, "\x02\x01", ErrVersion},
		{"long identity of length 0", HandshakeConfig{MinVersion: 1}, "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00", ErrVersion},
		{"long identity of 2^63", HandshakeConfig{MinVersion: 1}, "\xff\x80\x00\x00\x00\x00\x00\x00\x00\x00", ErrVersion},
		{"identity of 256 bytes", HandshakeConfig{MinVersion: 1}, "\xff\x00\x00\x00\x00\x00\x00\x01\x01\x00", ErrMalformed},
		{"revision 0, wrong type", HandshakeConfig{MinVersion: 1}, signature + "\x00\x01", ErrIncompatible},
		{"revision 0, length 0", HandshakeConfig{MinVersion: 1}, signature + "\x00\x05\x00", ErrMalformed},
		{"revision 0, identity with MORE", HandshakeConfig{MinVersion: 1}, signature + "\x00\x05\x02\x01", ErrMalformed},
		{"revision 0, identity of 256 bytes", HandshakeConfig{MinVersion: 1}, signature + "\x00\x05\xff\x00\x00\x00\x00\x00\x00\x01\x01\x00", ErrMalformed},
		{"revision 0, identity of 2^64-1", HandshakeConfig{MinVersion: 1}, signature + "\x00\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", ErrMalformed},
		{"2.0, wrong type", HandshakeConfig{MinVersion: 1}, signature + "\x01\x08", ErrIncompatible},
		{"2.0, no such type", HandshakeConfig{MinVersion: 1}, signature + "\x01\x0b", ErrIncompatible},
		{"2.0, identity with MORE", HandshakeConfig{MinVersion: 1}, signature + "\x01\x05\x01", ErrMalformed},
		{"2.0, command", HandshakeConfig{MinVersion: 1}, signature + "\x01\x05\x04", ErrMalformed},
		{"2.0, identity of 256 bytes", HandshakeConfig{MinVersion: 1}, signature + "\x01\x05\x02\x00\x00\x00\x00\x00\x00\x01\x00", ErrMalformed},
		{"2.0, identity of 2^63", HandshakeConfig{MinVersion: 1}, signature + "\x01\x05\x02\x80\x00\x00\x00\x00\x00\x00\x00", ErrMalformed},
		{"1.0, not below 2", HandshakeConfig{MinVersion: 2}, "\x01", ErrVersion},
		{"revision 0, not below 2", HandshakeConfig{MinVersion: 2}, signature + "\x00", ErrVersion},
		{"2.0, not below 3", HandshakeConfig{MinVersion: 3}, signature + "\x01", ErrVersion},
		{"2.0, by default", HandshakeConfig{}, signature + "\x01", ErrVersion},
		{"1.0, by default", HandshakeConfig{}, "\x01", ErrVersion},
		{"2.0 against a mechanism", HandshakeConfig{MinVersion: 1, Mechanism: curve}, signature + "\x01", ErrVersion},
		{"1.0 against a mechanism", HandshakeConfig{MinVersion: 1, Mechanism: curve}, "\x01", ErrVersion},
		{"1.0 against authentication", HandshakeConfig{MinVersion: 1, Mechanism: NewNullAuth(nil)}, "\x01", ErrVersion},
		{"no such version", HandshakeConfig{MinVersion: 4}, "", ErrConfig},
	} {
		c.config.SocketType = TypeRouter
		for _, piece := range []int{1, 2, 10, 11, 100} {
			h := NewHandshake(c.config)
			_, _, done, err := step(h, c.in, piece)
			if done {
				t.Errorf("%s: done", c.name)
			}
			if c.want == ErrConfig && c.in == "" {
				_, _, _, err = h.Step(nil, nil)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			wantError(t, err, c.want)
			if _, _, _, again := h.Step([]byte("x"), nil); again != err {
				t.Errorf("%s: then %v", c.name, again)
			}
			// There is no error before the last byte.
			if c.in != "" {
				if _, _, _, err := step(NewHandshake(c.config), c.in[:len(c.in)-1], piece); err != nil {
					t.Errorf("%s: refused too soon: %v", c.name, err)
				}
			}
		}
	}
}

// TestDowngradeMechanism: with a mechanism other than NULL the greeting is sent at
// once, with any MinVersion.
func TestDowngradeMechanism(t *testing.T) {
	t.Parallel()
	h := NewHandshake(HandshakeConfig{SocketType: TypePair, Mechanism: named{"TEST"}, MinVersion: 1})
	if got := h.Start(nil); len(got) != GreetingSize {
		t.Errorf("%x", got)
	}
	if h.Codec() != nil {
		t.Error("a codec without a handshake")
	}
}

// TestDowngradeBothSides: two sides that accept old peers use ZMTP 3.
func TestDowngradeBothSides(t *testing.T) {
	t.Parallel()
	for _, mins := range [][2]uint8{{1, 1}, {1, 2}, {1, 3}, {2, 2}, {2, 3}, {3, 3}} {
		a := NewHandshake(HandshakeConfig{SocketType: TypeDealer, Identity: []byte("a"), MinVersion: mins[0]})
		b := NewHandshake(HandshakeConfig{SocketType: TypeRouter, MinVersion: mins[1]})
		toB, toA := a.Start(nil), b.Start(nil)
		var doneA, doneB bool
		for range 8 {
			var out []byte
			var err error
			if len(toA) > 0 && !doneA {
				in := toA
				var rest string
				if out, rest, doneA, err = stepAll(a, in); err != nil {
					t.Fatal(err)
				}
				toA, toB = []byte(rest), append(toB, out...)
			}
			if len(toB) > 0 && !doneB {
				in := toB
				var rest string
				if out, rest, doneB, err = stepAll(b, in); err != nil {
					t.Fatal(err)
				}
				toB, toA = []byte(rest), append(toA, out...)
			}
		}
		if !doneA || !doneB || a.Peer().Major != 3 || b.Peer().Minor != 1 || string(b.Peer().Identity) != "a" {
			t.Errorf("%v: %v %v %+v %+v", mins, doneA, doneB, a.Peer(), b.Peer())
		}
		if a.Codec() != nil || b.Codec() != nil {
			t.Errorf("%v: a codec", mins)
		}
	}
}

// stepAll calls Step until it consumes no more bytes.
func stepAll(h *Handshake, in []byte) (out []byte, rest string, done bool, err error) {
	for {
		var n int
		n, out, done, err = h.Step(in, out)
		in = in[n:]
		if n == 0 || done || err != nil {
			return out, string(in), done, err
		}
	}
}
