package zmtp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// routerReady is the READY of a ROUTER as libzmq sends it.
const routerReady = "\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"

// step passes in to h in pieces of the given size. It returns the bytes that h sent
// after its greeting, the remaining bytes of in, and the result.
func step(h *Handshake, in string, piece int) (out []byte, rest string, done bool, err error) {
	var b []byte
	for {
		for {
			var n int
			n, out, done, err = h.Step(b, out)
			// Overwrite the consumed bytes, because nothing may keep them.
			clear(b[:n])
			b = b[n:]
			if done || err != nil {
				return out, string(b) + in, done, err
			}
			if n == 0 {
				break
			}
		}
		if in == "" {
			return out, string(b), false, nil
		}
		k := min(piece, len(in))
		b = append(bytes.Clone(b), in[:k]...)
		in = in[k:]
	}
}

func TestHandshake(t *testing.T) {
	t.Parallel()
	ready := func(properties ...string) string {
		var b []byte
		for i := 0; i < len(properties); i += 2 {
			b = AppendProperty(b, properties[i], []byte(properties[i+1]))
		}
		return string(AppendCommand(nil, CommandReady, b))
	}
	version := func(major, minor byte) string {
		b := []byte(greetingBytes)
		b[10], b[11] = major, minor
		return string(b)
	}
	for _, c := range []struct {
		name     string
		in       string
		want     Peer
		identity bool // announced, if empty
	}{
		{"libzmq 4.3.3", greetingBytes + routerReady, Peer{Major: 3, Minor: 1, SocketType: TypeRouter}, true},
		{"libzmq 4.1", version(3, 0) + routerReady, Peer{Major: 3, SocketType: TypeRouter}, true},
		{"future", version(4, 2) + routerReady, Peer{Major: 4, Minor: 2, SocketType: TypeRouter}, true},
		{"no Identity", greetingBytes + ready("Socket-Type", "REP"), Peer{Major: 3, Minor: 1, SocketType: TypeRep}, false},
		{"no Socket-Type", greetingBytes + ready(), Peer{Major: 3, Minor: 1, SocketType: TypeUnknown}, false},
		{"no Socket-Type but Identity", greetingBytes + ready("Identity", "id"),
			Peer{Major: 3, Minor: 1, SocketType: TypeUnknown, Identity: []byte("id")}, false},
		{"Identity, other case", greetingBytes + ready("socket-type", "DEALER", "IDENTITY", "\x01id"),
			Peer{Major: 3, Minor: 1, SocketType: TypeDealer, Identity: []byte("\x01id")}, false},
		{"Identity of a type without one", greetingBytes + ready("Socket-Type", "REP", "Identity", "id"),
			Peer{Major: 3, Minor: 1, SocketType: TypeRep}, false},
		{"longest Identity", greetingBytes + ready("Socket-Type", "DEALER", "Identity", strings.Repeat("i", 255)),
			Peer{Major: 3, Minor: 1, SocketType: TypeDealer, Identity: bytes.Repeat([]byte("i"), 255)}, false},
		{"duplicates", greetingBytes + ready("Socket-Type", "DEALER", "Socket-Type", "PUB", "Identity", "1", "Identity", "2"),
			Peer{Major: 3, Minor: 1, SocketType: TypeDealer, Identity: []byte("1")}, false},
		{"reserved flags", greetingBytes + "\xfc" + routerReady[1:], Peer{Major: 3, Minor: 1, SocketType: TypeRouter}, true},
		{"long form", greetingBytes + "\x06\x00\x00\x00\x00\x00\x00\x00" + routerReady[1:],
			Peer{Major: 3, Minor: 1, SocketType: TypeRouter}, true},
	} {
		for piece := 1; piece <= len(c.in); piece++ {
			h := NewHandshake(HandshakeConfig{SocketType: TypeDealer})
			if got := h.Start(nil); string(got) != greetingBytes {
				t.Fatalf("greeting %x", got)
			}
			out, rest, done, err := step(h, c.in+"\x00\x01m", piece)
			if !done || err != nil || rest != "\x00\x01m" {
				t.Fatalf("%s, pieces of %d: done %v, %v, rest %q", c.name, piece, done, err, rest)
			}
			if len(out) != 43 {
				t.Fatalf("%s: sent %x", c.name, out)
			}
			p := h.Peer()
			if p.Major != c.want.Major || p.Minor != c.want.Minor || p.SocketType != c.want.SocketType ||
				!bytes.Equal(p.Identity, c.want.Identity) || (p.Identity != nil) != (c.identity || c.want.Identity != nil) {
				t.Errorf("%s: peer %+v, want %+v", c.name, p, c.want)
			}
			if n, _, done, err := h.Step([]byte("\x00\x01m"), nil); n != 0 || !done || err != nil {
				t.Errorf("%s: after done: %d %v %v", c.name, n, done, err)
			}
		}
	}
}

func TestHandshakeErrors(t *testing.T) {
	t.Parallel()
	g := greetingBytes
	ready := func(name, value string) string {
		return string(AppendCommand(nil, CommandReady, AppendProperty(nil, name, []byte(value))))
	}
	for _, c := range []struct {
		name string
		in   string
		want error
		sent string // after READY
	}{
		{"ZMTP 2.0", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05", ErrVersion, ""},
		{"HTTP", "G", ErrVersion, ""},
		{"CURVE", strings.Replace(g, "NULL\x00", "CURVE", 1), ErrMechanism, ""},
		{"NULLX", strings.Replace(g, "NULL\x00", "NULLX", 1), ErrMechanism, ""},
		{"null", strings.Replace(g, "NULL", "null", 1), ErrMechanism, ""},
		{"message", g + "\x00", ErrMalformed, ""},
		{"command with MORE", g + "\x05", ErrMalformed, ""},
		{"no name", g + "\x04\x00", ErrMalformed, ""},
		{"PING", g + string(AppendPing(nil, 0, nil)), ErrMalformed, ""},
		{"HELLO", g + string(AppendCommand(nil, "HELLO", nil)), ErrMalformed, ""},
		{"ERROR", g + string(AppendError(nil, "400")), ErrRefused, ""},
		{"malformed ERROR", g + "\x04\x07\x05ERROR\x05", ErrMalformed, ""},
		{"malformed metadata", g + "\x04\x07\x05READY\x05", ErrMalformed, ""},
		{"large", g + "\x06\x00\x00\x00\x00\x00\x01\x00\x01", ErrTooLarge, ""},
		{"2^63", g + "\x06\x80\x00\x00\x00\x00\x00\x00\x00", ErrTooLarge, ""},
		{"wrong type", g + ready("Socket-Type", "PUB"), ErrIncompatible,
			string(AppendError(nil, "Socket-Type does not fit DEALER"))},
		{"no such type", g + ready("Socket-Type", "dealer"), ErrIncompatible,
			string(AppendError(nil, "Socket-Type does not fit DEALER"))},
		{"long Identity", g + ready("Identity", strings.Repeat("i", 256)), ErrMalformed,
			string(AppendError(nil, "Identity over 255 bytes"))},
	} {
		for _, piece := range []int{1, 63, 64, 65, 1000} {
			h := NewHandshake(HandshakeConfig{SocketType: TypeDealer})
			out, _, done, err := step(h, c.in, piece)
			if done {
				t.Errorf("%s: done", c.name)
			}
			wantError(t, err, c.want)
			if len(out) > 43 {
				out = out[43:]
			} else if len(out) == 43 || len(out) == 0 {
				out = nil
			}
			if string(out) != c.sent {
				t.Errorf("%s: sent %q, want %q", c.name, out, c.sent)
			}
			if _, _, _, again := h.Step([]byte(g), nil); again != err {
				t.Errorf("%s: then %v", c.name, again)
			}
		}
	}
}

func TestHandshakeRefusedReason(t *testing.T) {
	t.Parallel()
	h := NewHandshake(HandshakeConfig{SocketType: TypeSub})
	_, _, _, err := step(h, greetingBytes+string(AppendError(nil, "not you")), 1000)
	var p *ProtocolError
	if !errors.As(err, &p) || p.Reason != "not you" {
		t.Error(err)
	}
}

// TestHandshakeBothSides connects every pair of types.
func TestHandshakeBothSides(t *testing.T) {
	t.Parallel()
	for a := TypePair; a <= TypeXSub; a++ {
		for b := TypePair; b <= TypeXSub; b++ {
			ha := NewHandshake(HandshakeConfig{SocketType: a, Identity: []byte("a")})
			hb := NewHandshake(HandshakeConfig{SocketType: b, Metadata: Metadata{{"X-Name", []byte("b")}}})
			toA, toB := hb.Start(nil), ha.Start(nil)
			outA, _, _, err := step(ha, string(toA), 10)
			if err != nil {
				t.Fatal(err)
			}
			outB, _, _, err := step(hb, string(toB), 10)
			if err != nil {
				t.Fatal(err)
			}
			_, _, doneA, errA := step(ha, string(outB), 10)
			_, _, doneB, errB := step(hb, string(outA), 10)
			if want := Compatible(a, b); doneA != want || doneB != want {
				t.Errorf("%v %v: %v %v, %v %v", a, b, doneA, doneB, errA, errB)
			}
			if !doneA {
				wantError(t, errA, ErrIncompatible)
				wantError(t, errB, ErrIncompatible)
				continue
			}
			if v, _ := ha.Peer().Metadata.Get("x-name"); string(v) != "b" {
				t.Errorf("%v %v: X-Name %q", a, b, v)
			}
			if id := hb.Peer().Identity; (id != nil) != a.sendsIdentity() {
				t.Errorf("%v %v: Identity %q", a, b, id)
			}
		}
	}
}

func TestHandshakeConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		config HandshakeConfig
	}{
		{"type", HandshakeConfig{SocketType: TypeUnknown}},
		{"long identity", HandshakeConfig{Identity: make([]byte, 256)}},
		{"zero identity", HandshakeConfig{Identity: []byte("\x00a")}},
		{"name without X-", HandshakeConfig{Metadata: Metadata{{"Name", nil}}}},
		{"only X-", HandshakeConfig{Metadata: Metadata{{"X-", nil}}}},
		{"empty name", HandshakeConfig{Metadata: Metadata{{"", nil}}}},
		{"name with space", HandshakeConfig{Metadata: Metadata{{"X-a b", nil}}}},
		{"long name", HandshakeConfig{Metadata: Metadata{{"X-" + strings.Repeat("n", 254), nil}}}},
		{"mechanism", HandshakeConfig{Mechanism: named{strings.Repeat("M", 21)}}},
		{"mechanism without name", HandshakeConfig{Mechanism: named{""}}},
	} {
		if !errors.Is(c.config.Validate(), ErrConfig) {
			t.Errorf("%s: %v", c.name, c.config.Validate())
		}
		_, _, done, err := NewHandshake(c.config).Step(nil, nil)
		if done {
			t.Errorf("%s: done", c.name)
		}
		wantError(t, err, ErrConfig)
	}
	good := HandshakeConfig{Identity: bytes.Repeat([]byte("i"), 255), Metadata: Metadata{{"x-" + strings.Repeat("n", 253), nil}}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// named is a mechanism of two steps: it answers ONE with TWO and is done after
// THREE.
type named struct{ name string }

func (m named) Name() string                     { return m.name }
func (m named) Start(dst []byte) ([]byte, error) { return append(dst, "start"...), nil }
func (m named) AsServer() bool                   { return false }
func (m named) Codec() Codec                     { return nil }
func (m named) Abandon()                         {}
func (m named) Peer() Metadata                   { return Metadata{{"Socket-Type", []byte("PAIR")}} }
func (m named) Step(dst []byte, c Command) ([]byte, bool, error) {
	switch string(c.Name) {
	case "ONE":
		return AppendCommand(dst, "TWO", c.Data), false, nil
	case "THREE":
		return dst, true, nil
	}
	return dst, false, errors.New("of the mechanism")
}

func TestHandshakeMechanism(t *testing.T) {
	t.Parallel()
	greeting := string(AppendGreeting(nil, Greeting{Major: 3, Mechanism: "TEST"}))
	one, three := string(AppendCommand(nil, "ONE", []byte("1"))), string(AppendCommand(nil, "THREE", nil))
	h := NewHandshake(HandshakeConfig{SocketType: TypePair, Mechanism: named{"TEST"}})
	if g, _, _ := ParseGreeting(h.Start(nil)); g.Mechanism != "TEST" {
		t.Errorf("greeting %+v", g)
	}
	out, _, done, err := step(h, greeting+one+three, 7)
	if string(out) != "start\x04\x05\x03TWO1" || !done || err != nil || h.Peer().SocketType != TypePair {
		t.Errorf("%q %v %v", out, done, err)
	}
	h = NewHandshake(HandshakeConfig{SocketType: TypePair, Mechanism: named{"TEST"}})
	if _, _, _, err := step(h, greeting+three[:2]+"\x05OTHER", 7); err == nil || err.Error() != "of the mechanism" {
		t.Error(err)
	}
}

// TestHandshakeOwnsItsBytes: the configuration may change after NewHandshake, and
// the received bytes after Step.
func TestHandshakeOwnsItsBytes(t *testing.T) {
	t.Parallel()
	c := HandshakeConfig{SocketType: TypeDealer, Identity: []byte("me"), Metadata: Metadata{{"X-a", []byte("1")}}}
	h := NewHandshake(c)
	clear(c.Identity)
	clear(c.Metadata[0].Value)
	c.Metadata[0].Name = "X-b"
	out, _, _, err := step(h, greetingBytes, 64)
	if err != nil || !bytes.Contains(out, []byte("\x08Identity\x00\x00\x00\x02me\x03X-a\x00\x00\x00\x011")) {
		t.Errorf("%q %v", out, err)
	}
}
