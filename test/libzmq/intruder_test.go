package libzmq

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// What libzmq's tests of its security mechanisms say of peers that are not what they
// should be, and of ZAP handlers that do not do their work.

// TestLibzmq_security_unauthenticated: a peer of ZMTP 1.0, which has no mechanisms, does
// not get a message past any of them.
func TestLibzmq_security_unauthenticated(t *testing.T) {
	t.Parallel()
	for name, p := range mechanisms() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := new(sockets.Inproc)
			zapHandler(t, names, func(r []string) []string {
				t.Errorf("the handler is asked: %q", r)
				return []string{"", "1.0", r[2], "400", "", "", ""}
			})
			seen := newEvents()
			server := bind(t, sockets.NewDealer, sockets.Options{Security: in("WRONG", false, p.server), Inproc: names, Monitor: seen.Tell})
			r := dialRaw(t, server.LastEndpoint())
			_, _ = r.Conn.Write([]byte("\x01\x00")) // it may be refused already
			_, _ = r.Conn.Write([]byte("\x08\x00sneaky\x00"))
			seen.Await(t, sockets.EventHandshakeFailed)
			r.Ended()
			wantQueued(t, server)
			if n := seen.Count(sockets.EventHandshakeSucceeded); n > 0 {
				t.Errorf("%d were let in", n)
			}
		})
	}
}

// TestLibzmq_security_plain_credentials: the handler is told the user name, the password
// and the server's own identity, and its verdict about them counts. A client that takes
// itself for a server is not let in, and not one that the handler hears of.
func TestLibzmq_security_plain_credentials(t *testing.T) {
	t.Parallel()
	client := func(user, password string) sockets.Security {
		return sockets.Security{PlainUsername: user, PlainPassword: password, ZAPDomain: "test"}
	}
	for name, c := range map[string]struct {
		client sockets.Security
		asked  bool
		number uint16
	}{
		"admin":         {client("admin", "password"), true, libzmqSucceeded},
		"wrong":         {client("wronguser", "wrongpass"), true, libzmqAuth},
		"wrong user":    {client("wronguser", "password"), true, libzmqAuth},
		"as a server":   {sockets.Security{PlainServer: true, ZAPDomain: "test"}, false, libzmqNoDetail},
		"without any":   {sockets.Security{}, false, libzmqProtocol},
		"with no words": {client("admin", ""), true, libzmqAuth},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := new(sockets.Inproc)
			var asked atomic.Int32
			zapHandler(t, names, func(r []string) []string {
				asked.Add(1)
				if got, want := r[:7], []string{"", "1.0", r[2], "test", "127.0.0.1", "IDENT\x00", "PLAIN"}; !slices.Equal(got, want) || len(r) != 9 {
					t.Errorf("the handler is asked %q", r)
				}
				status := "400"
				if r[7] == "admin" && r[8] == "password" {
					status = "200"
				}
				return []string{"", r[1], r[2], status, "", "anonymous", ""}
			})
			seen := newEvents()
			o := sockets.Options{
				Security: sockets.Security{PlainServer: true, ZAPDomain: "test"}, Identity: []byte("IDENT\x00"),
				Inproc: names, Monitor: seen.Tell, Linger: sockets.LingerNone,
			}
			if c.number == libzmqNoDetail {
				o.HandshakeTimeout = 500 * time.Millisecond // both sides wait for the other's HELLO
			}
			server := bind(t, sockets.NewDealer, o)
			client := open(t, sockets.NewDealer, sockets.Options{Security: c.client, Linger: sockets.LingerNone})
			must(t, client.Connect(server.LastEndpoint()))
			must(t, client.Send(testContext(t), []byte("bounce")))
			if c.number == libzmqSucceeded {
				wants(t, server, "bounce")
				says(t, server, "back")
				wants(t, client, "back")
			} else {
				if number, _ := seen.Await(t, sockets.EventHandshakeFailed).Code(); number != c.number {
					t.Errorf("the event is %#x, want %#x", number, c.number)
				}
				wantQueued(t, server)
				if n := seen.Count(sockets.EventHandshakeSucceeded); n > 0 {
					t.Errorf("%d were let in", n)
				}
			}
			if (asked.Load() > 0) != c.asked {
				t.Errorf("the handler was asked %d times", asked.Load())
			}
		})
	}
}

// curveIntruder is a CURVE client that has received WELCOME.
type curveIntruder struct {
	*raw
	hello, initiate []byte // frames
}

// newCurveIntruder has a client with these keys do the handshake up to there. If change
// is not nil, it sends what that makes of HELLO instead, and waits for nothing.
func newCurveIntruder(t *testing.T, endpoint string, keys zmtp.KeyPair, server zmtp.PublicKey, change func(hello []byte) []byte) *curveIntruder {
	t.Helper()
	r := &curveIntruder{raw: dialRaw(t, endpoint)}
	config := zmtp.HandshakeConfig{SocketType: zmtp.TypeDealer}
	config.Mechanism = zmtp.NewCurveClient(zmtp.CurveClientConfig{Keys: keys, Server: server, Properties: config.AppendProperties(nil)})
	h := zmtp.NewHandshake(config)
	r.Send(h.Start(nil))
	greeting := make([]byte, zmtp.GreetingSize)
	_, err := io.ReadFull(r.In, greeting)
	must(t, err)
	_, r.hello, _, err = h.Step(greeting, nil)
	must(t, err)
	if change != nil {
		r.Send(change(r.hello))
		return r
	}
	r.Send(r.hello)
	flags, body := r.Frame()
	if !bytes.HasPrefix(body, []byte("\x07WELCOME")) {
		t.Fatalf("%q in place of WELCOME", body)
	}
	_, r.initiate, _, err = h.Step(append([]byte{flags, byte(len(body))}, body...), nil)
	must(t, err)
	return r
}

// changed is a frame with one byte of its body changed.
func changed(frame []byte, at int) []byte {
	frame = bytes.Clone(frame)
	header := 2
	if frame[0]&zmtp.FlagLong != 0 {
		header = 9
	}
	frame[header+at] ^= 0x55
	return frame
}

// TestLibzmq_security_curve_intruder: each way in which a CURVE client's HELLO or INITIATE
// can be wrong ends its connection, with libzmq's number for it, before the ZAP handler
// hears of it.
func TestLibzmq_security_curve_intruder(t *testing.T) {
	t.Parallel()
	p := mechanisms()["CURVE"]
	good := zmtp.KeyPair{Public: p.client.CurveSecretKey.Public(), Secret: p.client.CurveSecretKey}
	// A client does not start with keys of zeros. X25519 (RFC 7748, section 5) takes these
	// for the same, because it ignores the last bit of the one and the first of the other.
	null := zmtp.PublicKey{len(good.Public) - 1: 0x80}
	for name, c := range map[string]struct {
		keys     zmtp.KeyPair
		hello    func(frame []byte) []byte
		initiate func(frame []byte) []byte
		code     uint32
	}{
		"HELLO without anything":       {good, func([]byte) []byte { return []byte("\x04\x06\x05HELLO") }, nil, zmtp.CodeMalformedHello},
		"HELLO by another name":        {good, func(f []byte) []byte { return changed(f, 5) }, nil, zmtp.CodeUnexpectedCommand},
		"HELLO of another version":     {good, func(f []byte) []byte { return changed(f, 6) }, nil, zmtp.CodeMalformedHello},
		"INITIATE without anything":    {good, nil, func([]byte) []byte { return []byte("\x04\x09\x08INITIATE") }, zmtp.CodeMalformedInitiate},
		"INITIATE by another name":     {good, nil, func(f []byte) []byte { return changed(f, 5) }, zmtp.CodeUnexpectedCommand},
		"INITIATE with another cookie": {good, nil, func(f []byte) []byte { return changed(f, 30) }, zmtp.CodeCryptographic},
		"INITIATE with another box":    {good, nil, func(f []byte) []byte { return changed(f, 150) }, zmtp.CodeCryptographic},
		"null public key":              {zmtp.KeyPair{Public: null, Secret: good.Secret}, nil, bytes.Clone, zmtp.CodeCryptographic},
		"null secret key":              {zmtp.KeyPair{Public: good.Public, Secret: zmtp.SecretKey{1}}, nil, bytes.Clone, zmtp.CodeCryptographic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := new(sockets.Inproc)
			zapHandler(t, names, func(r []string) []string {
				t.Errorf("the handler is asked: %q", r)
				return []string{"", "1.0", r[2], "200", "", "", ""}
			})
			seen := newEvents()
			server := bind(t, sockets.NewDealer, sockets.Options{Security: in("ZAPTEST", true, p.server), Inproc: names, Monitor: seen.Tell})
			r := newCurveIntruder(t, server.LastEndpoint(), c.keys, p.client.CurveServerKey, c.hello)
			if c.initiate != nil {
				if n := seen.Count(sockets.EventHandshakeFailed); n > 0 {
					t.Errorf("%d handshakes failed by WELCOME", n)
				}
				r.Send(c.initiate(r.initiate))
			}
			if number, value := seen.Await(t, sockets.EventHandshakeFailed).Code(); number != libzmqProtocol || value != c.code {
				t.Errorf("the event is %#x %#x, want the code %#x", number, value, c.code)
			}
			r.Ended()
			wantQueued(t, server)
			if n := seen.Count(sockets.EventHandshakeSucceeded); n > 0 {
				t.Errorf("%d were let in", n)
			}
		})
	}
}

// TestLibzmq_security_curve_keys: a client with its keys gets in, with one event on each
// side and none more when it goes, also where the server's identity is as long as it can
// be; one with other keys is authenticated by the handler; NULL and PLAIN are not; and keys that
// are none are refused.
func TestLibzmq_security_curve_keys(t *testing.T) {
	t.Parallel()
	p := mechanisms()["CURVE"]
	bogus := p.client
	bogus.CurveSecretKey = zmtp.GenerateKeyPair().Secret
	long := strings.Repeat("0123456789", 26)[:255]
	for name, c := range map[string]struct {
		client   sockets.Security
		identity string
		number   uint16
		asked    int32
	}{
		"its keys":      {p.client, "IDENT", libzmqSucceeded, 1},
		"long identity": {p.client, long, libzmqSucceeded, 1},
		"other keys":    {bogus, "IDENT", libzmqAuth, 1},
		"NULL":          {sockets.Security{}, "IDENT", libzmqProtocol, 0},
		"PLAIN":         {sockets.Security{PlainUsername: "admin", PlainPassword: "password"}, "IDENT", libzmqProtocol, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := new(sockets.Inproc)
			valid := p.client.CurveSecretKey.Public()
			var asked atomic.Int32
			zapHandler(t, names, func(r []string) []string {
				asked.Add(1)
				if r[5] != c.identity || r[6] != "CURVE" || len(r) != 8 {
					t.Errorf("the handler is asked %q", r)
				}
				status := "400"
				if r[7] == string(valid[:]) {
					status = "200"
				}
				return []string{"", r[1], r[2], status, "OK", "anonymous", ""}
			})
			atServer, atClient := newEvents(), newEvents()
			server := bind(t, sockets.NewDealer, sockets.Options{
				Security: in("ZAPTEST", true, p.server), Identity: []byte(c.identity), Inproc: names, Monitor: atServer.Tell, Linger: sockets.LingerNone,
			})
			client := open(t, sockets.NewDealer, sockets.Options{Security: c.client, Linger: sockets.LingerNone, Monitor: atClient.Tell})
			must(t, client.Connect(server.LastEndpoint()))
			must(t, client.Send(testContext(t), []byte("bounce")))
			if c.number != libzmqSucceeded {
				if number, _ := atServer.Await(t, sockets.EventHandshakeFailed).Code(); number != c.number {
					t.Errorf("the event is %#x, want %#x", number, c.number)
				}
				if number, _ := atClient.Await(t, sockets.EventHandshakeFailed).Code(); number != c.number {
					t.Errorf("the client's event is %#x, want %#x", number, c.number)
				}
				wantQueued(t, server)
			} else {
				wants(t, server, "bounce")
				says(t, server, "back")
				wants(t, client, "back")
				must(t, client.Close())
				atServer.Await(t, sockets.EventDisconnected)
				for _, seen := range []*events{atServer, atClient} {
					if n, failed := seen.Count(sockets.EventHandshakeSucceeded), seen.Count(sockets.EventHandshakeFailed); n != 1 || failed != 0 {
						t.Errorf("%d handshakes succeeded and %d failed", n, failed)
					}
				}
			}
			if n := asked.Load(); n < c.asked || c.asked == 0 && n > 0 {
				t.Errorf("the handler was asked %d times", n)
			}
		})
	}
	noServer, noSecret := p.client, p.client
	noServer.CurveServerKey, noSecret.CurveSecretKey = zmtp.PublicKey{}, zmtp.SecretKey{}
	for _, s := range []sockets.Security{noServer, noSecret} {
		var fault *sockets.OptionError
		if _, err := sockets.NewDealer(sockets.Options{Security: s}); !errors.As(err, &fault) {
			t.Errorf("%v: %v", s, err)
		}
	}
	for _, bad := range []string{strings.Repeat("0", 123), strings.Repeat("0", 39), ""} {
		if _, err := zmtp.ParsePublicKey(bad); err == nil {
			t.Errorf("a public key of %d characters", len(bad))
		}
		if _, err := zmtp.ParseSecretKey(bad); err == nil {
			t.Errorf("a secret key of %d characters", len(bad))
		}
	}
}

// TestLibzmq_security_zap_idle: while a handler has not answered, nobody is let in; a
// client that goes then is one that has gone. If the handler goes, so is the server's
// event, and no other client comes in.
func TestLibzmq_security_zap_idle(t *testing.T) {
	t.Parallel()
	for name, p := range mechanisms() {
		for _, does := range []string{"does not receive", "does not send", "goes"} {
			t.Run(fmt.Sprint(name, " ", does), func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				names := new(sockets.Inproc)
				handler := open(t, sockets.NewRep, sockets.Options{Inproc: names, Linger: sockets.LingerNone})
				must(t, handler.Bind(ctx, "inproc://zeromq.zap.01"))
				seen := newEvents()
				server := bind(t, sockets.NewDealer, sockets.Options{Security: in("ZAPTEST", false, p.server), Inproc: names, Monitor: seen.Tell, Linger: sockets.LingerNone})
				client := open(t, sockets.NewDealer, sockets.Options{Security: p.client, Linger: sockets.LingerNone})
				must(t, client.Connect(server.LastEndpoint()))
				must(t, client.Send(ctx, []byte("bounce")))
				readable(t, handler)
				if does != "does not receive" {
					_, err := handler.Recv(ctx)
					must(t, err)
				}
				if does == "goes" {
					must(t, handler.Close())
				} else {
					must(t, client.Close())
				}
				for range 2 {
					e := seen.Await(t, sockets.EventHandshakeFailed)
					if number, value := e.Code(); number != libzmqNoDetail || !isEnd(value) {
						t.Errorf("the event is %#x %#x: %v", number, value, e.Err)
					}
					if does != "goes" {
						break
					}
				}
				wantQueued(t, server)
				if n := seen.Count(sockets.EventHandshakeSucceeded); n > 0 {
					t.Errorf("%d were let in", n)
				}
			})
		}
	}
}
