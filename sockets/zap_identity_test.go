package sockets

import (
	"context"
	"errors"
	"testing"
	"time"

	"clustermap/zmtp"
)

// TestZAPIdentity: a ZAP handler is told the identity of the socket that asks, as libzmq
// tells it. Authenticate is told the peer's: the one that came with CURVE's INITIATE, and
// none with NULL and PLAIN, where the peer has not announced one by then.
func TestZAPIdentity(t *testing.T) {
	t.Parallel()
	for name, p := range pairs() {
		for asked, handler := range map[string]bool{"handler": true, "Authenticate": false} {
			t.Run(name+"/"+asked, func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				p := p // each test changes its own
				names := new(Inproc)
				told := make(chan string, 1)
				p.server.ZAPDomain = "domain"
				p.server.Authenticate = func(_ context.Context, r AuthRequest) (User, error) {
					told <- r.Identity
					return User{}, nil
				}
				if handler {
					p.server.Authenticate = nil
					zapHandler(t, names, func(request []string) []string {
						told <- request[5]
						return []string{"", "1.0", request[2], "200", "", "", ""}
					})
				}
				router := bind(t, NewRouter, Options{Security: p.server, Identity: []byte("server"), Inproc: names})
				dealer := open(t, NewDealer, Options{Security: p.client, Identity: []byte("client")})
				must(t, dealer.Connect(router.LastEndpoint()))
				must(t, dealer.Send(ctx, []byte("x")))
				wantRecv(t, func() (Message, error) { return router.Recv(ctx) }, "client", "x")
				want := ""
				switch {
				case handler:
					want = "server"
				case name == "CURVE":
					want = "client"
				}
				if got := <-told; got != want {
					t.Errorf("told %q, want %q", got, want)
				}
			})
		}
	}
}

// TestCookieEnds: a CURVE client that stops after WELCOME is given up at the
// end of its cookie's life, however long the handshake may take.
func TestCookieEnds(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	p := pairs()["CURVE"]
	router := open(t, NewRouter, Options{Security: p.server, HandshakeTimeout: time.Hour, Monitor: seen.Tell})
	router.core.Tuning.CookieLifetime = 50 * time.Millisecond
	must(t, router.Bind(testContext(t), anyPort))
	r := dialRaw(t, router.LastEndpoint())
	config := zmtp.HandshakeConfig{SocketType: zmtp.TypeDealer}
	config.Mechanism = zmtp.NewCurveClient(zmtp.CurveClientConfig{
		Keys:   zmtp.KeyPair{Public: p.client.CurveSecretKey.Public(), Secret: p.client.CurveSecretKey},
		Server: p.client.CurveServerKey, Properties: config.AppendProperties(nil),
	})
	h := zmtp.NewHandshake(config)
	r.Send(h.Start(nil))
	greeting := make([]byte, zmtp.GreetingSize)
	for n := 0; n < len(greeting); {
		m, err := r.In.Read(greeting[n:])
		must(t, err)
		n += m
	}
	_, hello, _, err := h.Step(greeting, nil)
	must(t, err)
	r.Send(hello)
	if name, _ := r.Command(); name != "WELCOME" {
		t.Fatalf("%s instead of WELCOME", name)
	}
	r.Ended()
	if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrHandshakeTimeout) {
		t.Errorf("%v", e.Err)
	}
}

// TestCookieEndsWhileAuthenticated: the time of an authenticator is the handshake's, not
// that of the cookie, which has done its work by then.
func TestCookieEndsWhileAuthenticated(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := pairs()["CURVE"]
	const life = 200 * time.Millisecond
	p.server.Authenticate = func(ctx context.Context, _ AuthRequest) (User, error) {
		select {
		case <-ctx.Done():
			return User{}, ctx.Err()
		case <-time.After(2 * life):
			return User{ID: "late"}, nil
		}
	}
	router := open(t, NewRouter, Options{Security: p.server, HandshakeTimeout: time.Hour})
	router.core.Tuning.CookieLifetime = life
	must(t, router.Bind(ctx, anyPort))
	dealer := open(t, NewDealer, Options{Security: p.client})
	must(t, dealer.Connect(router.LastEndpoint()))
	must(t, dealer.Send(ctx, []byte("x")))
	if _, peer, err := router.RecvFrom(ctx); err != nil || peer.UserID() != "late" {
		t.Errorf("%v, %v", peer, err)
	}
}
