package zmtp

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// curveForger is a peer that follows RFC 26 with the keys of the vectors, but can
// send any contents in each command.
type curveForger struct {
	long, connected, server KeyPair // server: only Public is used by clients
	session                 secretKey
}

// boxed appends the box of plain between the two keys.
func boxed(dst, plain []byte, prefix string, nonce []byte, public PublicKey, secret SecretKey) []byte {
	var key secretKey
	if err := agree(&key, &public, &secret); err != nil {
		panic(err)
	}
	return seal(dst, plain, nonceOf(prefix, nonce), &key)
}

// hello returns the data of a HELLO.
func (f *curveForger) hello(version string, nonce uint64, signed []byte) []byte {
	b := append([]byte(version), make([]byte, helloPadding)...)
	b = append(b, f.connected.Public[:]...)
	b = binary.BigEndian.AppendUint64(b, nonce)
	return boxed(b, signed, prefixHello, b[len(b)-shortNonce:], f.server.Public, f.connected.Secret)
}

// welcomed opens a WELCOME and returns its cookie and S'.
func (f *curveForger) welcomed(t *testing.T, welcome []byte) (cookie []byte, server PublicKey) {
	t.Helper()
	data := welcome[2+8:]
	var key secretKey
	if err := agree(&key, &f.server.Public, &f.connected.Secret); err != nil {
		t.Fatal(err)
	}
	plain, err := open(nil, data[longNonce:], nonceOf(prefixWelcome, data[:longNonce]), &key, "WELCOME")
	if err != nil {
		t.Fatal(err)
	}
	server = PublicKey(plain[:KeySize])
	if err := agree(&f.session, &server, &f.connected.Secret); err != nil {
		t.Fatal(err)
	}
	return plain[KeySize:], server
}

// vouch returns a vouch for the given keys.
func (f *curveForger) vouch(first, second PublicKey, to PublicKey) []byte {
	nonce := make([]byte, longNonce)
	return boxed(nonce, append(first[:], second[:]...), prefixVouch, nonce, to, f.long.Secret)
}

// TestCurveServerErrors runs the handshake of a server up to INITIATE, with one
// error each time.
func TestCurveServerErrors(t *testing.T) {
	t.Parallel()
	ck, sk := vectorKeys()
	properties := AppendProperty(nil, PropertySocketType, []byte("DEALER"))
	zeros := make([]byte, helloSigned)
	type attempt struct {
		f                *curveForger
		hello            func() []byte
		helloName        string
		initiateName     string
		cookie           func([]byte) []byte
		nonce            uint64
		owner            PublicKey
		vouch            func(server PublicKey) []byte
		properties       []byte
		seal             func([]byte) []byte // changes the sealed box of INITIATE
		size             int                 // of INITIATE's data, if not 0
		twice            bool
		beforeAcceptance bool
	}
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte {
			b = bytes.Clone(b)
			b[(at+len(b))%len(b)] ^= 1
			return b
		}
	}
	for _, c := range []struct {
		name   string
		change func(a *attempt)
		want   error // nil: the server accepts
		sent   string
	}{
		{"all right", func(*attempt) {}, nil, ""},
		{"padding is not looked at", func(a *attempt) {
			h := a.hello()
			h[2], h[73] = 1, 1
			a.hello = func() []byte { return h }
		}, nil, ""},
		{"gap between nonces", func(a *attempt) { a.nonce = 1 << 60 }, nil, ""},
		{"no properties", func(a *attempt) { a.properties = nil }, nil, ""},

		{"HELLO too short", func(a *attempt) { h := a.hello(); a.hello = func() []byte { return h[:len(h)-1] } }, ErrMalformed, ""},
		{"HELLO too long", func(a *attempt) { h := a.hello(); a.hello = func() []byte { return append(h, 0) } }, ErrMalformed, ""},
		{"HELLO empty", func(a *attempt) { a.hello = func() []byte { return nil } }, ErrMalformed, ""},
		{"HELLO, version 2.0", func(a *attempt) { a.hello = func() []byte { return a.f.hello("\x02\x00", 1, zeros) } }, ErrMalformed, ""},
		{"HELLO, version 1.1", func(a *attempt) { a.hello = func() []byte { return a.f.hello("\x01\x01", 1, zeros) } }, ErrMalformed, ""},
		{"HELLO, box of other contents", func(a *attempt) {
			a.hello = func() []byte { return a.f.hello(curveVersion, 1, bytes.Repeat([]byte{1}, helloSigned)) }
		}, ErrMalformed, ""},
		{"HELLO for another server", func(a *attempt) { a.f.server = GenerateKeyPair() }, ErrCryptographic, ""},
		{"HELLO, another C'", func(a *attempt) { h := flip(74)(a.hello()); a.hello = func() []byte { return h } }, ErrCryptographic, ""},
		{"HELLO, C' of low order", func(a *attempt) {
			h := a.hello()
			clear(h[74:106])
			a.hello = func() []byte { return h }
		}, ErrCryptographic, ""},
		{"HELLO, another nonce", func(a *attempt) { h := flip(113)(a.hello()); a.hello = func() []byte { return h } }, ErrCryptographic, ""},
		{"HELLO, box changed", func(a *attempt) { h := flip(-1)(a.hello()); a.hello = func() []byte { return h } }, ErrCryptographic, ""},
		{"HELLO, tag changed", func(a *attempt) { h := flip(114)(a.hello()); a.hello = func() []byte { return h } }, ErrCryptographic, ""},
		{"READY first", func(a *attempt) { a.helloName = CommandReady }, ErrMalformed, ""},
		{"INITIATE first", func(a *attempt) { a.helloName = commandInitiate }, ErrMalformed, ""},
		{"ERROR first", func(a *attempt) { a.helloName = CommandError }, ErrMalformed, ""},
		{"HELLO twice", func(a *attempt) { a.initiateName = commandHello }, ErrMalformed, ""},
		{"MESSAGE instead of INITIATE", func(a *attempt) { a.initiateName = commandMessage }, ErrMalformed, ""},
		{"unknown command", func(a *attempt) { a.initiateName = "NONSENSE" }, ErrMalformed, ""},

		{"INITIATE too short", func(a *attempt) { a.size = initiateFixed - 1 }, ErrMalformed, ""},
		{"INITIATE empty", func(a *attempt) { a.size = -1 }, ErrMalformed, ""},
		{"INITIATE cut", func(a *attempt) { a.size = initiateFixed }, ErrCryptographic, ""},
		{"cookie's nonce changed", func(a *attempt) { a.cookie = flip(0) }, ErrCryptographic, ""},
		{"cookie's tag changed", func(a *attempt) { a.cookie = flip(16) }, ErrCryptographic, ""},
		{"cookie changed", func(a *attempt) { a.cookie = flip(-1) }, ErrCryptographic, ""},
		{"cookie of another connection", func(a *attempt) {
			_, other, _, _ := curvePair()
			other.h.mechanism.(*CurveServer).random = counted(77)
			data := a.f.hello(curveVersion, 1, zeros)
			out, _, err := other.h.mechanism.Step(nil, Command{Name: []byte(commandHello), Data: data})
			if err != nil {
				t.Fatal(err)
			}
			cookie, _ := a.f.welcomed(t, out)
			a.cookie = func([]byte) []byte { return cookie }
		}, ErrCryptographic, ""},
		{"INITIATE changed", func(a *attempt) { a.seal = flip(-1) }, ErrCryptographic, ""},
		{"INITIATE, tag changed", func(a *attempt) { a.seal = flip(0) }, ErrCryptographic, ""},
		{"INITIATE, nonce of HELLO", func(a *attempt) { a.nonce = 1 }, ErrCryptographic, ""},
		{"INITIATE, nonce 0", func(a *attempt) { a.nonce = 0 }, ErrCryptographic, ""},
		{"another client's C", func(a *attempt) { a.owner = GenerateKeyPair().Public }, ErrCryptographic, ""},
		{"C of low order", func(a *attempt) { a.owner = PublicKey{} }, ErrCryptographic, ""},
		{"vouch changed", func(a *attempt) {
			a.vouch = func(s PublicKey) []byte { return flip(-1)(a.f.vouch(a.f.connected.Public, sk.Public, s)) }
		}, ErrCryptographic, ""},
		{"vouch's nonce changed", func(a *attempt) {
			a.vouch = func(s PublicKey) []byte { return flip(0)(a.f.vouch(a.f.connected.Public, sk.Public, s)) }
		}, ErrCryptographic, ""},
		{"vouch for another C'", func(a *attempt) {
			a.vouch = func(s PublicKey) []byte { return a.f.vouch(ck.Public, sk.Public, s) }
		}, ErrCryptographic, ""},
		{"vouch for another server", func(a *attempt) {
			a.vouch = func(s PublicKey) []byte { return a.f.vouch(a.f.connected.Public, ck.Public, s) }
		}, ErrCryptographic, ""},
		{"vouch to the long-term key", func(a *attempt) {
			a.vouch = func(PublicKey) []byte { return a.f.vouch(a.f.connected.Public, sk.Public, sk.Public) }
		}, ErrCryptographic, ""},
		{"malformed properties", func(a *attempt) { a.properties = []byte{5} }, ErrMalformed, ""},
		{"wrong type", func(a *attempt) { a.properties = AppendProperty(nil, PropertySocketType, []byte("PUB")) }, ErrIncompatible,
			string(AppendError(nil, "Socket-Type does not fit ROUTER"))},
		{"INITIATE twice", func(a *attempt) { a.twice, a.beforeAcceptance = true, true }, ErrMalformed, ""},
	} {
		f := &curveForger{long: ck, connected: GenerateKeyPair(), server: KeyPair{Public: sk.Public}}
		a := &attempt{f: f, helloName: commandHello, initiateName: commandInitiate, nonce: 2, owner: ck.Public, properties: properties}
		a.hello = func() []byte { return f.hello(curveVersion, 1, zeros) }
		a.cookie = func(b []byte) []byte { return b }
		a.seal = a.cookie
		a.vouch = func(s PublicKey) []byte { return f.vouch(f.connected.Public, sk.Public, s) }
		c.change(a)

		_, server, _, sm := curvePair()
		server.h.Start(nil)
		feed := func(b []byte) []byte {
			server.in = append(server.in, b...)
			return server.take(admit)
		}
		feed(AppendGreeting(nil, Greeting{Major: 3, Minor: 1, Mechanism: "CURVE"}))
		welcome := feed(AppendCommand(nil, a.helloName, a.hello()))
		if server.err == nil {
			cookie, s := f.welcomed(t, welcome)
			plain := append(a.owner[:], a.vouch(s)...)
			plain = append(plain, a.properties...)
			nonce := binary.BigEndian.AppendUint64(nil, a.nonce)
			data := append(a.cookie(cookie), nonce...)
			data = append(data, a.seal(seal(nil, plain, nonceOf(prefixInitiate, nonce), &f.session))...)
			switch {
			case a.size > 0:
				data = data[:a.size]
			case a.size < 0:
				data = nil
			}
			if a.beforeAcceptance {
				// Call the mechanism directly.
				_, _, err := sm.Step(nil, Command{Name: []byte(commandInitiate), Data: data})
				if err != nil {
					t.Fatal(err)
				}
			}
			feed(AppendCommand(nil, a.initiateName, data))
		}
		if c.want == nil {
			if !server.done {
				t.Errorf("%s: %v", c.name, server.err)
			}
			continue
		}
		if server.done {
			t.Errorf("%s: done", c.name)
			continue
		}
		wantError(t, server.err, c.want)
		if !bytes.HasSuffix(server.sent, []byte(c.sent)) || c.sent == "" && bytes.Contains(server.sent, []byte("ERROR")) {
			t.Errorf("%s: sent %q", c.name, server.sent)
		}
		var zero secretKey
		if secretKey(sm.config.Keys.Secret) != zero || sm.cookieKey != zero || sm.session != zero {
			t.Errorf("%s: keys are still there", c.name)
		}
	}
}

// TestCurveClientErrors passes the bytes of the vectors to a client, with one
// error each time.
func TestCurveClientErrors(t *testing.T) {
	t.Parallel()
	v := vectors(t)
	ck, sk := vectorKeys()
	welcome, ready := string(v["welcome"]), string(v["ready"])
	flip := func(b string, at int) string {
		c := []byte(b)
		c[(at+len(c))%len(c)] ^= 1
		return string(c)
	}
	command := func(name string, data []byte) string { return string(AppendCommand(nil, name, data)) }
	// The server's secret keys are those of the vectors, so the test can make
	// any box.
	fill := counted(2)
	var connected KeyPair
	fill(connected.Secret[:])
	connected.Public = connected.Secret.Public()
	fill = counted(1)
	var client KeyPair
	fill(client.Secret[:])
	client.Public = client.Secret.Public()
	nonce := make([]byte, longNonce)
	welcomeOf := func(plain []byte) string {
		return command(commandWelcome, boxed(bytes.Clone(nonce), plain, prefixWelcome, nonce, client.Public, sk.Secret))
	}
	readyOf := func(plain []byte) string {
		short := binary.BigEndian.AppendUint64(nil, 1)
		return command(CommandReady, boxed(bytes.Clone(short), plain, prefixReady, short, client.Public, connected.Secret))
	}
	pub := AppendProperty(nil, PropertySocketType, []byte("PUB"))
	for _, c := range []struct {
		name string
		in   string
		want error
	}{
		{"READY first", ready, ErrMalformed},
		{"HELLO", string(v["hello"]), ErrMalformed},
		{"MESSAGE", command(commandMessage, make([]byte, 40)), ErrMalformed},
		{"message", "\x00\x00", ErrMalformed},
		{"WELCOME too short", command(commandWelcome, v["welcome"][10:][:welcomeSize-1]), ErrMalformed},
		{"WELCOME too long", command(commandWelcome, append(bytes.Clone(v["welcome"][10:]), 0)), ErrMalformed},
		{"WELCOME empty", command(commandWelcome, nil), ErrMalformed},
		{"WELCOME, nonce changed", flip(welcome, 10), ErrCryptographic},
		{"WELCOME, tag changed", flip(welcome, 26), ErrCryptographic},
		{"WELCOME changed", flip(welcome, -1), ErrCryptographic},
		{"WELCOME with S' of low order", welcomeOf(make([]byte, KeySize+cookieSize)), ErrCryptographic},
		{"WELCOME twice", welcome + welcome, ErrMalformed},
		{"READY too short", welcome + command(CommandReady, make([]byte, readyFixed-1)), ErrMalformed},
		{"READY empty", welcome + command(CommandReady, nil), ErrMalformed},
		{"READY, nonce changed", welcome + flip(ready, 9), ErrCryptographic},
		{"READY, tag changed", welcome + flip(ready, 17), ErrCryptographic},
		{"READY changed", welcome + flip(ready, -1), ErrCryptographic},
		{"READY, malformed metadata", welcome + readyOf([]byte{5}), ErrMalformed},
		{"READY, wrong type", welcome + readyOf(pub), ErrIncompatible},
		{"PING", welcome + string(AppendPing(nil, 0, nil)), ErrMalformed},
		{"ERROR", string(AppendError(nil, "400")), ErrRefused},
		{"ERROR after WELCOME", welcome + string(AppendError(nil, "400")), ErrRefused},
		{"malformed ERROR", welcome + command(CommandError, []byte("\x05")), ErrMalformed},
	} {
		c2 := HandshakeConfig{SocketType: TypeDealer, Identity: []byte("me")}
		m := NewCurveClient(CurveClientConfig{Properties: c2.AppendProperties(nil), Keys: ck, Server: sk.Public})
		m.random = counted(1)
		c2.Mechanism = m
		s := &side{h: NewHandshake(c2)}
		s.h.Start(nil)
		s.in = append(AppendGreeting(nil, Greeting{Major: 3, Minor: 1, Mechanism: "CURVE", AsServer: true}), c.in...)
		s.take(admit)
		if s.done {
			t.Errorf("%s: done", c.name)
			continue
		}
		wantError(t, s.err, c.want)
		// A client never sends ERROR.
		if bytes.Contains(s.sent, []byte("ERROR")) {
			t.Errorf("%s: sent %q", c.name, s.sent)
		}
		var zero secretKey
		if secretKey(m.config.Keys.Secret) != zero || m.session != zero || m.hello != zero {
			t.Errorf("%s: keys are still there", c.name)
		}
	}
	// The forged commands above are accepted if their contents are right.
	good := readyOf(AppendProperty(nil, PropertySocketType, []byte("ROUTER")))
	s, _, _, _ := curvePair()
	s.h.Start(nil)
	s.in = append(AppendGreeting(nil, Greeting{Major: 3, Minor: 1, Mechanism: "CURVE"}), welcome+good...)
	if s.take(admit); !s.done {
		t.Error(s.err)
	}
}

// TestCurveLowOrder: public keys of low order are refused.
func TestCurveLowOrder(t *testing.T) {
	t.Parallel()
	secret := GenerateKeyPair().Secret
	// 0, 1, and p-1, p, p+1 with p = 2^255-19, in little-endian order.
	keys := []PublicKey{{}, {1}}
	for _, low := range []byte{0xec, 0xed, 0xee} {
		k := PublicKey(bytes.Repeat([]byte{0xff}, KeySize))
		k[0], k[KeySize-1] = low, 0x7f
		keys = append(keys, k)
	}
	for _, k := range keys {
		var key secretKey
		wantError(t, agree(&key, &k, &secret), ErrCryptographic)
	}
	if binary.LittleEndian.Uint64(secret[:]) == 0 {
		t.Error("no secret")
	}
}
