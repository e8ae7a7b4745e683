package libzmq

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/sockettest"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// The requirements of libzmq's tests of its security mechanisms, with our sockets at both
// ends, or a scripted peer at one.

// libzmqSecured is a planned link, and the events that both monitors must report of it.
type libzmqSecured struct {
	name           string
	server, client sockets.Security
	handler        string // status that the ZAP handler answers, none if empty
	number         uint16 // of the server's event: HANDSHAKE_SUCCEEDED, or the failure's
	value          uint32 // of it, if it is a failure; 0 if any
	atClient       uint16 // number of the client's event; if it is _AUTH, the value is the same
}

// Numbers of libzmq's events.
const (
	libzmqNoDetail  = 0x0800
	libzmqSucceeded = 0x1000
	libzmqProtocol  = 0x2000
	libzmqAuth      = 0x4000
)

// noHandler is the value of libzmq's event if there is no ZAP handler.
const noHandler = uint32(syscall.EFAULT)

// check makes the link, and has a message bounce if it comes about.
func (c *libzmqSecured) check(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	names := new(sockets.Inproc)
	if c.handler != "" {
		zapHandler(t, names, func(r []string) []string { return []string{"", "1.0", r[2], c.handler, "", "", ""} })
	}
	outcome := func(seen *events) sockets.Event {
		var e sockets.Event
		eventually(t, "a handshake succeeds or fails", func() bool {
			for _, e = range seen.All() {
				if e.Kind == sockets.EventHandshakeSucceeded || e.Kind == sockets.EventHandshakeFailed {
					return true
				}
			}
			return false
		})
		return e
	}
	atServer, atClient := newEvents(), newEvents()
	server := bind(t, sockets.NewDealer, sockets.Options{Security: c.server, Inproc: names, Linger: sockets.LingerNone, Monitor: atServer.Tell})
	client := open(t, sockets.NewDealer, sockets.Options{Security: c.client, Linger: sockets.LingerNone, Monitor: atClient.Tell})
	must(t, client.Connect(server.LastEndpoint()))
	number, value := outcome(atServer).Code()
	if number != c.number || c.value != 0 && value != c.value {
		t.Errorf("the server says %#x %#x, want %#x %#x", number, value, c.number, c.value)
	}
	number, value = outcome(atClient).Code()
	if number != c.atClient || number == libzmqAuth && value != c.value || number == libzmqNoDetail && !isEnd(value) {
		t.Errorf("the client says %#x %#x, want %#x", number, value, c.atClient)
	}
	if c.number != libzmqSucceeded {
		wantQueued(t, server)
		wantQueued(t, client)
		return
	}
	must(t, client.Send(ctx, []byte("12345678ABCDEFGH"), nil, []byte("12345678abcdefgh")))
	m, err := server.Recv(ctx)
	must(t, err)
	must(t, server.Send(ctx, m...))
	m, err = client.Recv(ctx)
	must(t, err)
	if sockettest.Show(texts(m)...) != `["12345678ABCDEFGH" "" "12345678abcdefgh"]` {
		t.Errorf("%q bounced", m)
	}
}

// isEnd reports whether value is one with which libzmq reports that a peer has gone.
func isEnd(value uint32) bool {
	return value == uint32(syscall.EPIPE) || value == uint32(syscall.ECONNRESET)
}

func checkSecured(t *testing.T, all []libzmqSecured) {
	t.Parallel()
	for _, c := range all {
		t.Run(c.name, c.check)
	}
}

// in is s in a ZAP domain.
func in(domain string, enforced bool, s sockets.Security) sockets.Security {
	s.ZAPDomain, s.ZAPEnforceDomain = domain, enforced
	return s
}

func TestLibzmq_security_null(t *testing.T) {
	null := sockets.Security{}
	checkSecured(t, []libzmqSecured{
		{"no domain", null, null, "", libzmqSucceeded, 0, libzmqSucceeded},
		{"no domain, handler not asked", null, null, "400", libzmqSucceeded, 0, libzmqSucceeded},
		{"domain, accepted", in("TEST", false, null), null, "200", libzmqSucceeded, 0, libzmqSucceeded},
		{"domain, denied", in("WRONG", false, null), null, "400", libzmqAuth, 400, libzmqAuth},
		{"domain without handler", in("TEST", false, null), null, "", libzmqSucceeded, 0, libzmqSucceeded},
		{"domain enforced without handler", in("TEST", true, null), null, "", libzmqNoDetail, noHandler, libzmqNoDetail},
	})
}

func TestLibzmq_security_plain(t *testing.T) {
	p := mechanisms()["PLAIN"]
	checkSecured(t, []libzmqSecured{
		{"accepted", p.server, p.client, "200", libzmqSucceeded, 0, libzmqSucceeded},
		{"denied", p.server, p.client, "400", libzmqAuth, 400, libzmqAuth},
		{"client of NULL", p.server, sockets.Security{}, "200", libzmqProtocol, zmtp.CodeMechanismMismatch, libzmqProtocol},
	})
	refuseMalformed(t, "PLAIN", p.server, []malformedHandshake{
		{"HELLO without anything", zmtp.AppendCommand(nil, "HELLO", nil), zmtp.CodeMalformedHello},
		{"HELLO without a password", zmtp.AppendCommand(nil, "HELLO", []byte("\x05admin")), zmtp.CodeMalformedHello},
		{"HELLO with more behind it", zmtp.AppendCommand(nil, "HELLO", []byte("\x01a\x01b?")), zmtp.CodeMalformedHello},
		{"INITIATE before HELLO", zmtp.AppendCommand(nil, "INITIATE", nil), zmtp.CodeUnexpectedCommand},
		{"READY before HELLO", ready("DEALER", nil), zmtp.CodeUnexpectedCommand},
	})
}

func TestLibzmq_security_curve(t *testing.T) {
	p := mechanisms()["CURVE"]
	wrongServer := p.client
	wrongServer.CurveServerKey = zmtp.GenerateKeyPair().Public
	checkSecured(t, []libzmqSecured{
		{"accepted", p.server, p.client, "200", libzmqSucceeded, 0, libzmqSucceeded},
		{"denied", p.server, p.client, "400", libzmqAuth, 400, libzmqAuth},
		{"wrong server key", p.server, wrongServer, "200", libzmqProtocol, zmtp.CodeCryptographic, libzmqNoDetail},
		{"client of NULL", p.server, sockets.Security{}, "200", libzmqProtocol, zmtp.CodeMechanismMismatch, libzmqProtocol},
		{"client of PLAIN", p.server, mechanisms()["PLAIN"].client, "200", libzmqProtocol, zmtp.CodeMechanismMismatch, libzmqProtocol},
	})
	hello := append([]byte("\x01\x00"), make([]byte, 192)...)
	refuseMalformed(t, "CURVE", p.server, []malformedHandshake{
		{"HELLO of the wrong size", zmtp.AppendCommand(nil, "HELLO", hello[:193]), zmtp.CodeMalformedHello},
		{"HELLO of another version", zmtp.AppendCommand(nil, "HELLO", append([]byte("\x02\x00"), hello[2:]...)), zmtp.CodeMalformedHello},
		{"HELLO whose box does not open", zmtp.AppendCommand(nil, "HELLO", hello), zmtp.CodeCryptographic},
		{"INITIATE before HELLO", zmtp.AppendCommand(nil, "INITIATE", make([]byte, 248)), zmtp.CodeUnexpectedCommand},
		{"a message before HELLO", wire("unauthenticated"), 0},
	})
}

func TestLibzmq_security_zap(t *testing.T) {
	var all []libzmqSecured
	for name, p := range mechanisms() {
		server := in("ZAPTEST", false, p.server)
		enforced := in("ZAPTEST", true, p.server)
		all = append(all,
			libzmqSecured{name + " without handler", enforced, p.client, "", libzmqNoDetail, noHandler, libzmqNoDetail},
			libzmqSecured{name + " invalid_status", server, p.client, "invalid_status", libzmqProtocol, zmtp.CodeZAPInvalidStatus, libzmqNoDetail},
			libzmqSecured{name + " 200", server, p.client, "200", libzmqSucceeded, 0, libzmqSucceeded},
			libzmqSecured{name + " 300", server, p.client, "300", libzmqAuth, 300, libzmqNoDetail},
			libzmqSecured{name + " 400", server, p.client, "400", libzmqAuth, 400, libzmqAuth},
			libzmqSecured{name + " 500", server, p.client, "500", libzmqAuth, 500, libzmqAuth},
			libzmqSecured{name + " invalid status", server, p.client, "900", libzmqProtocol, zmtp.CodeZAPInvalidStatus, libzmqNoDetail},
		)
	}
	checkSecured(t, all) // the other faults of a reply are in TestZAPRefuses
}

func TestLibzmq_security_no_zap_handler(t *testing.T) {
	p := mechanisms()
	checkSecured(t, []libzmqSecured{
		{"PLAIN", p["PLAIN"].server, p["PLAIN"].client, "", libzmqNoDetail, noHandler, libzmqNoDetail},
		{"CURVE", p["CURVE"].server, p["CURVE"].client, "", libzmqSucceeded, 0, libzmqSucceeded},
		{"CURVE, enforced", in("domain", true, p["CURVE"].server), p["CURVE"].client, "", libzmqNoDetail, noHandler, libzmqNoDetail},
		{"CURVE, enforced, no domain", in("", true, p["CURVE"].server), p["CURVE"].client, "", libzmqSucceeded, 0, libzmqSucceeded},
		{"NULL, enforced", in("domain", true, sockets.Security{}), sockets.Security{}, "", libzmqNoDetail, noHandler, libzmqNoDetail},
	})
}

// malformedHandshake has the bytes that a peer sends after its greeting, and libzmq's
// code for them, 0 if that does not matter.
type malformedHandshake struct {
	name  string
	bytes []byte
	code  uint32
}

// refuseMalformed plays such peers: the connection ends, with a typed event, and
// none of their bytes come through.
func refuseMalformed(t *testing.T, mechanism string, server sockets.Security, all []malformedHandshake) {
	t.Helper()
	seen := newEvents()
	router := bind(t, sockets.NewRouter, sockets.Options{Security: server, Inproc: new(sockets.Inproc), Monitor: seen.Tell})
	for _, c := range all {
		r := dialRaw(t, router.LastEndpoint())
		r.Send(zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Minor: 1, Mechanism: mechanism}), bytes.Clone(c.bytes))
		e := seen.Await(t, sockets.EventHandshakeFailed)
		if number, value := e.Code(); number != libzmqProtocol || c.code != 0 && value != c.code {
			t.Errorf("%s: %#x %#x, want the code %#x: %v", c.name, number, value, c.code, e.Err)
		}
		r.Ended()
	}
	if n := seen.Count(sockets.EventHandshakeSucceeded); n > 0 {
		t.Errorf("%d were let in", n)
	}
}

// TestLibzmq_security_zap_handler: a handler that is silent, dies, or answers
// garbage lets no client in and does no harm beyond that. A client whose handler is
// silent waits, and is let in by the next handler that answers.
func TestLibzmq_security_zap_handler(t *testing.T) {
	t.Parallel()
	for name, p := range mechanisms() {
		for _, does := range []string{"is silent", "dies", "answers garbage"} {
			t.Run(name+"/"+does, func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				names := new(sockets.Inproc)
				handler := open(t, sockets.NewRouter, sockets.Options{Inproc: names})
				must(t, handler.Bind(ctx, "inproc://zeromq.zap.01"))
				seen := newEvents()
				o := sockets.Options{Security: in("ZAPTEST", true, p.server), Inproc: names, Monitor: seen.Tell}
				if does == "is silent" {
					o.HandshakeTimeout = 200 * time.Millisecond
				}
				router := bind(t, sockets.NewRouter, o)
				// It says "x" on each of its connections.
				var dealer *sockets.Dealer
				dealer = open(t, sockets.NewDealer, quick(sockets.Options{
					Identity: []byte("me"), Security: p.client, Linger: sockets.LingerNone,
					Monitor: func(e sockets.Event) {
						if e.Kind == sockets.EventHandshakeSucceeded {
							_ = dealer.TrySend([]byte("x")) // it may be closed
						}
					},
				}))
				must(t, dealer.Connect(router.LastEndpoint()))
				request, err := handler.Recv(ctx)
				must(t, err)
				switch does {
				case "dies":
					must(t, handler.Close())
				case "answers garbage":
					must(t, handler.Send(ctx, request[0], []byte("garbage"), nil, []byte("200")))
				}
				e := seen.Await(t, sockets.EventHandshakeFailed)
				number, value := e.Code()
				switch want := map[string]error{"is silent": sockets.ErrHandshakeTimeout, "dies": sockets.ErrNoAuthenticator}[does]; {
				case want != nil && !errors.Is(e.Err, want):
					t.Errorf("%v, want %v", e.Err, want)
				case (number == libzmqProtocol && value == zmtp.CodeZAPMalformedReply) != (does == "answers garbage"):
					t.Errorf("the event is %#x", number)
				}
				if n := seen.Count(sockets.EventHandshakeSucceeded); n > 0 {
					t.Errorf("%d were let in", n)
				}
				must(t, handler.Close())
				zapHandler(t, names, func(request []string) []string {
					return []string{"", "1.0", request[2], "200", "", "", ""}
				})
				wantRecv(t, func() (sockets.Message, error) { return router.Recv(ctx) }, "me", "x")
			})
		}
	}
}
