package zmtp

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// Keys of the vectors in testdata/curve.txt: bytes 1 to 32 and 101 to 132.
func vectorKeys() (client, server KeyPair) {
	for i := range client.Secret {
		client.Secret[i], server.Secret[i] = byte(1+i), byte(101+i)
	}
	client.Public, server.Public = client.Secret.Public(), server.Secret.Public()
	return client, server
}

// counted returns the random function of the vectors: byte i is 7i + start.
func counted(start byte) func([]byte) {
	next := start
	return func(b []byte) {
		for i := range b {
			b[i] = next
			next += 7
		}
	}
}

// curvePair returns both sides of CURVE, a DEALER and a ROUTER, with the keys
// and random bytes of the vectors.
func curvePair() (client, server *side, cm *CurveClient, sm *CurveServer) {
	ck, sk := vectorKeys()
	c := HandshakeConfig{SocketType: TypeDealer, Identity: []byte("me")}
	cm = NewCurveClient(CurveClientConfig{Properties: c.AppendProperties(nil), Keys: ck, Server: sk.Public})
	cm.random = counted(1)
	c.Mechanism = cm
	s := HandshakeConfig{SocketType: TypeRouter}
	sm = NewCurveServer(CurveServerConfig{Properties: s.AppendProperties(nil), Keys: sk})
	sm.random = counted(2)
	s.Mechanism = sm
	return &side{h: NewHandshake(c)}, &side{h: NewHandshake(s)}, cm, sm
}

// vectors reads testdata/curve.txt.
func vectors(t *testing.T) map[string][]byte {
	t.Helper()
	b, err := os.ReadFile("testdata/curve.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			continue
		}
		if all[name], err = hex.DecodeString(value); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestCurveVectors compares every byte of a connection with the result of libsodium
// for the same keys and random bytes.
func TestCurveVectors(t *testing.T) {
	t.Parallel()
	want := vectors(t)
	client, server, _, _ := curvePair()
	converse(client, server, 1000, func(h *Handshake, c Credentials) ([]byte, bool, error) {
		if c.Mechanism != "CURVE" || len(c.Values) != 1 || !bytes.Equal(c.Values[0], want["clientPublic"]) {
			t.Errorf("credentials %x", c.Values)
		}
		return h.Accept(nil, "bob", nil)
	})
	if !client.done || !server.done {
		t.Fatal(client.err, server.err)
	}
	compare := func(what string, got []byte) {
		t.Helper()
		if !bytes.Equal(got, want[what]) {
			t.Errorf("%s:\n%x, want\n%x", what, got, want[what])
		}
	}
	_, sk := vectorKeys()
	compare("serverPublic", sk.Public[:])
	fromClient, fromServer := commands(t, client.sent), commands(t, server.sent)
	compare("hello", fromClient["HELLO"])
	compare("welcome", fromServer["WELCOME"])
	compare("initiate", fromClient["INITIATE"])
	compare("ready", fromServer["READY"])
	if len(fromClient["HELLO"]) != 2+6+helloSize || len(fromServer["WELCOME"]) != 2+8+welcomeSize || helloSize < welcomeSize {
		t.Error("sizes")
	}

	plain := vectorTraffic()
	cc, sc := client.h.Codec(), server.h.Codec()
	wire, err := cc.Encode(nil, plain)
	compare("toServer", wire)
	if err != nil {
		t.Error(err)
	}
	out, used, _, err := sc.Decode(nil, wire, 1<<20)
	if !bytes.Equal(out, plain) || used != len(wire) || err != nil {
		t.Errorf("%q %d %v", out, used, err)
	}
	reply := AppendMessage(nil, []byte("hello"))
	wire, err = sc.Encode(nil, reply)
	compare("toClient", wire)
	if err != nil {
		t.Error(err)
	}
	out, used, _, err = cc.Decode(nil, wire, 1<<20)
	if !bytes.Equal(out, reply) || used != len(wire) || err != nil {
		t.Errorf("%q %d %v", out, used, err)
	}

	if p := server.h.Peer(); p.UserID != "bob" || p.SocketType != TypeDealer || string(p.Identity) != "me" {
		t.Errorf("%+v", p)
	}
	if p := client.h.Peer(); p.SocketType != TypeRouter || p.Identity == nil {
		t.Errorf("%+v", p)
	}
}

// vectorTraffic is the client's traffic in the vectors.
func vectorTraffic() []byte {
	long := make([]byte, 300)
	for i := range long {
		long[i] = byte(i)
	}
	plain := AppendMessage(nil, []byte("a"), nil)
	plain = AppendPing(plain, 0, nil)
	return AppendMessage(plain, long)
}

// TestCurvePieces splits the handshake into pieces of every size; the bytes sent
// do not change.
func TestCurvePieces(t *testing.T) {
	t.Parallel()
	var sent [2][]byte
	for _, piece := range []int{1000, 1, 2, 3, 5, 7, 63, 64, 65, 100, 202, 203, 264, 265, 330} {
		client, server, _, _ := curvePair()
		converse(client, server, piece, admit)
		if !client.done || !server.done {
			t.Fatal(piece, client.err, server.err)
		}
		if piece == 1000 {
			sent[0], sent[1] = client.sent, server.sent
		}
		if !bytes.Equal(client.sent, sent[0]) || !bytes.Equal(server.sent, sent[1]) {
			t.Errorf("pieces of %d: other bytes", piece)
		}
	}
}

// TestCurveSplit replays the vectors' bytes to each side, split at every offset.
func TestCurveSplit(t *testing.T) {
	t.Parallel()
	client, server, _, _ := curvePair()
	converse(client, server, 1000, admit)
	toClient, toServer := server.sent, client.sent
	for cut := 0; cut <= max(len(toClient), len(toServer)); cut += 1 + cut%47 {
		client, server, _, _ := curvePair()
		for _, c := range []struct {
			s  *side
			in []byte
		}{{client, toClient}, {server, toServer}} {
			if cut > len(c.in) {
				continue
			}
			c.s.h.Start(nil)
			c.s.in = bytes.Clone(c.in[:cut])
			c.s.take(admit)
			c.s.in = append(c.s.in, c.in[cut:]...)
			c.s.take(admit)
			if !c.s.done {
				t.Fatalf("cut at %d: %v", cut, c.s.err)
			}
		}
	}
}

func TestCurveRandomKeys(t *testing.T) {
	t.Parallel()
	ck, sk := GenerateKeyPair(), GenerateKeyPair()
	var all [2][]byte
	for i := range all {
		c, s := HandshakeConfig{SocketType: TypeReq}, HandshakeConfig{SocketType: TypeRep}
		c.Mechanism = NewCurveClient(CurveClientConfig{Properties: c.AppendProperties(nil), Keys: ck, Server: sk.Public})
		s.Mechanism = NewCurveServer(CurveServerConfig{Properties: s.AppendProperties(nil), Keys: sk})
		client, server := &side{h: NewHandshake(c)}, &side{h: NewHandshake(s)}
		converse(client, server, 100, admit)
		if !client.done || !server.done {
			t.Fatal(client.err, server.err)
		}
		all[i] = client.sent[GreetingSize:]
	}
	if bytes.Equal(all[0][:2+6+helloSize], all[1][:2+6+helloSize]) {
		t.Error("two connections with the same keys")
	}
}

// TestCurveWipes checks that the mechanisms erase their keys after success and
// after failure.
func TestCurveWipes(t *testing.T) {
	t.Parallel()
	check := func(cm *CurveClient, sm *CurveServer) {
		t.Helper()
		var zero secretKey
		for i, key := range []secretKey{secretKey(cm.config.Keys.Secret), secretKey(cm.connected.Secret), cm.hello, cm.session,
			secretKey(sm.config.Keys.Secret), sm.cookieKey, sm.session} {
			if key != zero {
				t.Errorf("key %d is still there", i)
			}
		}
	}
	client, server, cm, sm := curvePair()
	converse(client, server, 1000, admit)
	check(cm, sm)

	client, server, cm, sm = curvePair()
	converse(client, server, 1000, func(h *Handshake, _ Credentials) ([]byte, bool, error) {
		out, err := h.Deny(nil, StatusDenied)
		return out, false, err
	})
	wantError(t, server.err, ErrDenied)
	wantError(t, client.err, ErrRefused)
	if !bytes.HasSuffix(server.sent, []byte("\x04\x0a\x05ERROR\x03400")) {
		t.Errorf("sent %x", server.sent)
	}
	check(cm, sm)
}

// TestCurveConfig: missing keys are an error.
func TestCurveConfig(t *testing.T) {
	t.Parallel()
	pair := GenerateKeyPair()
	lowOrder := PublicKey{1}
	for _, c := range []CurveClientConfig{
		{},
		{Keys: pair},
		{Server: pair.Public},
		{Keys: KeyPair{Public: pair.Public}, Server: pair.Public},
		{Keys: pair, Server: lowOrder},
	} {
		out, err := NewCurveClient(c).Start([]byte("x"))
		wantError(t, err, ErrConfig)
		if string(out) != "x" {
			t.Errorf("sent %x", out)
		}
	}
	for _, k := range []KeyPair{{}, {Public: pair.Public}, {Secret: pair.Secret}} {
		out, err := NewCurveServer(CurveServerConfig{Keys: k}).Start([]byte("x"))
		wantError(t, err, ErrConfig)
		if string(out) != "x" {
			t.Errorf("sent %x", out)
		}
	}
}
