package sockets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"clustermap/internal/sockettest"
	"clustermap/zmtp"
)

// zapHandler answers every request with the result of answer.
func zapHandler(t *testing.T, names *Inproc, answer func(request []string) []string) {
	t.Helper()
	sockettest.ServeZAP(t, open(t, NewRouter, Options{Inproc: names}), answer)
}

// TestZAP: the handler is asked with the frames of RFC 27, and its verdict takes effect.
func TestZAP(t *testing.T) {
	t.Parallel()
	for name, p := range pairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			names := new(Inproc)
			requests := make(chan []string, 1)
			metadata := string(zmtp.AppendProperty(zmtp.AppendProperty(nil, "Colour", []byte("blue")), "colour", []byte("red")))
			zapHandler(t, names, func(request []string) []string {
				requests <- request
				return []string{"", "1.0", request[2], "200", "OK", "user", metadata}
			})
			p.server.Authenticate, p.server.ZAPDomain, p.server.ZAPEnforceDomain = nil, "domain", true
			seen := newEvents()
			router := bind(t, NewRouter, Options{Security: p.server, Identity: []byte("router"), Inproc: names, Monitor: seen.Tell})
			dealer := open(t, NewDealer, Options{Security: p.client})
			must(t, dealer.Connect(router.LastEndpoint()))
			must(t, dealer.Send(ctx, []byte("x")))
			_, err := router.Recv(ctx)
			must(t, err)
			want := []string{"", "1.0", "1", "domain", "127.0.0.1", "router", name}
			switch name {
			case "PLAIN":
				want = append(want, "user", "secret")
			case "CURVE":
				key := p.client.CurveSecretKey.Public()
				want = append(want, string(key[:]))
			}
			if got := <-requests; !slices.Equal(got, want) {
				t.Errorf("asked %q, want %q", got, want)
			}
			peer := seen.Await(t, EventHandshakeSucceeded).Peer
			user, _ := peer.Property("User-Id")
			colour, _ := peer.Property("COLOUR")
			if peer.UserID() != "user" || user != "user" || colour != "blue" {
				t.Errorf("user %q, %q of colour %q", peer.UserID(), user, colour)
			}
		})
	}
}

// TestZAPRefuses: each status and each fault of a reply has its effect, and the
// right event on both sides.
func TestZAPRefuses(t *testing.T) {
	t.Parallel()
	good := []string{"", "1.0", "1", "200", "", "", ""}
	with := func(i int, text string) []string {
		reply := slices.Clone(good)
		reply[i] = text
		return reply
	}
	for name, c := range map[string]struct {
		reply  []string
		server error
		status string // that the client is told
		number uint16 // of the server's event, as libzmq has it
		value  uint32
	}{
		"300":              {with(3, "300"), ErrTemporary, "", 0x4000, 300},
		"400":              {with(3, "400"), ErrDenied, "400", 0x4000, 400},
		"500":              {with(3, "500"), errZAPFailed, "500", 0x4000, 500},
		"another status":   {with(3, "204"), errZAPStatus, "", 0x2000, 0x20000004},
		"no status":        {with(3, ""), errZAPStatus, "", 0x2000, 0x20000004},
		"another version":  {with(1, "1.1"), errZAPVersion, "", 0x2000, 0x20000003},
		"another id":       {with(2, "2"), errZAPID, "", 0x2000, 0x20000002},
		"metadata":         {with(6, "\x03abc"), errZAPMetadata, "", 0x2000, 0x20000005},
		"a frame too few":  {good[:6], errZAPMalformed, "", 0x2000, 0x20000001},
		"a frame too many": {append(slices.Clone(good), ""), errZAPMalformed, "", 0x2000, 0x20000001},
		"no delimiter":     {with(0, "x"), errZAPMalformed, "", 0x2000, 0x20000001},
	} {
		for mechanism, p := range pairs() {
			t.Run(fmt.Sprint(name, "/", mechanism), func(t *testing.T) {
				t.Parallel()
				names := new(Inproc)
				zapHandler(t, names, func([]string) []string { return c.reply })
				p.server.Authenticate, p.server.ZAPDomain = nil, "domain"
				atServer, atClient := newEvents(), newEvents()
				router := bind(t, NewRouter, Options{Security: p.server, Inproc: names, Monitor: atServer.Tell})
				dealer := open(t, NewDealer, Options{Security: p.client, Linger: LingerNone, Monitor: atClient.Tell})
				must(t, dealer.Connect(router.LastEndpoint()))
				e := atServer.Await(t, EventHandshakeFailed)
				if number, value := e.Code(); !errors.Is(e.Err, c.server) || number != c.number || value != c.value {
					t.Errorf("the server says %#x %#x, %v", number, value, e.Err)
				}
				e = atClient.Await(t, EventHandshakeFailed)
				var refused *zmtp.ProtocolError
				if told := errors.As(e.Err, &refused); told != (c.status != "") || told && refused.Reason != c.status {
					t.Errorf("the client says %v", e.Err)
				}
				if want := (c.status != ""); want != (e.Failure() == FailureAuth) {
					t.Errorf("the client's failure is %v", e.Failure())
				}
			})
		}
	}
}

// TestZAPNotAsked: without need the handler is not asked, and Authenticate comes
// before it.
func TestZAPNotAsked(t *testing.T) {
	t.Parallel()
	p := pairs()
	quiet := func(s Security, change func(*Security)) Security {
		s.Authenticate = nil
		change(&s)
		return s
	}
	for name, c := range map[string]struct{ server, client Security }{
		"NULL without a domain":           {quiet(p["NULL"].server, func(*Security) {}), Security{}},
		"CURVE without a domain, by rule": {quiet(p["CURVE"].server, func(s *Security) { s.ZAPEnforceDomain = true }), p["CURVE"].client},
		"Authenticate":                    p["PLAIN"],
	} {
		names := new(Inproc)
		zapHandler(t, names, func(request []string) []string {
			t.Errorf("%s: asked", name)
			return nil
		})
		router := bind(t, NewRouter, Options{Security: c.server, Inproc: names})
		dealer := open(t, NewDealer, Options{Security: c.client})
		must(t, dealer.Connect(router.LastEndpoint()))
		must(t, dealer.Send(testContext(t), []byte("x")))
		_, err := router.Recv(testContext(t))
		must(t, err)
	}
}

// TestZAPSilent: a handler that does not answer keeps no other connection from
// ending.
func TestZAPSilent(t *testing.T) {
	t.Parallel()
	names := new(Inproc)
	handler := open(t, NewRouter, Options{Inproc: names})
	must(t, handler.Bind(testContext(t), zapEndpoint))
	seen := newEvents()
	p := pairs()["CURVE"]
	p.server.Authenticate = nil
	router := bind(t, NewRouter, Options{Security: p.server, Inproc: names, Monitor: seen.Tell})
	dealer := open(t, NewDealer, Options{Security: p.client, Linger: LingerNone})
	must(t, dealer.Connect(router.LastEndpoint()))
	_, err := handler.Recv(testContext(t))
	must(t, err)
	within(t, "Close", func() { must(t, router.Close()) })
	if seen.Count(EventHandshakeFailed)+seen.Count(EventHandshakeSucceeded) > 0 {
		t.Errorf("its own end is told: %v", seen.Kinds())
	}
}

// FuzzZAPReply: for any answer of a handler, either it lets the peer in with a status of
// 200, or there is an error.
func FuzzZAPReply(f *testing.F) {
	for _, status := range []string{"200", "300", "400", "500", "201", ""} {
		f.Add("", "1.0", "1", status, "text", "user", zmtp.AppendProperty(nil, "name", []byte("value")), 7)
	}
	f.Add("x", "2.0", "2", "200", "", "", []byte{1}, 8)
	f.Fuzz(func(t *testing.T, delimiter, version, id, status, text, user string, metadata []byte, count int) {
		frames := [][]byte{[]byte(delimiter), []byte(version), []byte(id), []byte(status), []byte(text), []byte(user), metadata}
		for len(frames) < min(count, 20) {
			frames = append(frames, nil)
		}
		frames = frames[:min(max(count, 0), len(frames))]
		u, err := parseZAPReply(frames)
		switch {
		case err != nil && (u.ID != "" || u.Metadata != nil):
			t.Errorf("%v, and %v all the same", err, u)
		case err == nil && (len(frames) != 7 || delimiter != "" || version != "1.0" || id != "1" || status != "200" || u.ID != user):
			t.Errorf("%q lets %v in", frames, u)
		}
	})
}

// TestZAPFault: a request that fails while its context goes on is an error, and not
// the nil that would let the peer in.
func TestZAPFault(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(testContext(t))
	defer cancel(nil)
	if err := zapFault(ctx, ErrClosed); err != ErrClosed {
		t.Errorf("before the end of the context: %v", err)
	}
	cancel(ErrNoAuthenticator)
	if err := zapFault(ctx, ErrClosed); err != ErrNoAuthenticator {
		t.Errorf("after it: %v", err)
	}
}

// When a ZAP handler has ended, the sockets that it guarded refuse all peers, until
// another handler is bound; also a socket that no peer had asked for before.
func TestZAPHandlerThatEndedLetsNobodyIn(t *testing.T) {
	t.Parallel()
	for name, p := range pairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			names := new(Inproc)
			p.server.Authenticate, p.server.ZAPDomain = nil, "domain"
			handle := func() *Router {
				handler := open(t, NewRouter, Options{Inproc: names})
				must(t, handler.Bind(ctx, zapEndpoint))
				return handler
			}
			must(t, handle().Close())
			seen := newEvents()
			router := bind(t, NewRouter, Options{Security: p.server, Inproc: names, Monitor: seen.Tell})
			dealer := open(t, NewDealer, Options{Security: p.client, Linger: LingerNone, ReconnectInterval: time.Millisecond})
			must(t, dealer.Connect(router.LastEndpoint()))
			for range 2 {
				if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrNoAuthenticator) {
					t.Fatalf("refused because of %v", e.Err)
				}
			}
			handler := handle()
			request, err := handler.Recv(ctx)
			must(t, err)
			must(t, handler.Send(ctx, request[0], nil, []byte("1.0"), request[3], []byte("200"), nil, nil, nil))
			seen.Await(t, EventHandshakeSucceeded)
		})
	}
}
