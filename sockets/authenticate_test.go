package sockets

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/zmtp"
)

// TestAuthenticateSlowly: a peer whose authentication takes long does not keep others out, and
// its time is bounded.
func TestAuthenticateSlowly(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	asked := make(chan context.Context, 1)
	seen := newEvents()
	router := bind(t, NewRouter, Options{
		Monitor: seen.Tell,
		Security: Security{PlainServer: true, ZAPDomain: "domain", Authenticate: func(ctx context.Context, r AuthRequest) (User, error) {
			if r.Username() == "quick" {
				return User{ID: r.Username()}, nil
			}
			if r.Domain != "domain" || r.Address != "127.0.0.1" || r.Mechanism != "PLAIN" || r.Password() != "p" {
				return User{}, fmt.Errorf("asked for %v", r)
			}
			asked <- ctx
			<-ctx.Done()
			return User{}, ctx.Err()
		}},
	})
	slow := open(t, NewDealer, Options{Security: Security{PlainUsername: "slow", PlainPassword: "p"}, Linger: LingerNone})
	must(t, slow.Connect(router.LastEndpoint()))
	asking := <-asked
	if _, bounded := asking.Deadline(); !bounded {
		t.Error("the authenticator's time is not bounded")
	}
	quick := open(t, NewDealer, Options{Security: Security{PlainUsername: "quick"}})
	must(t, quick.Connect(router.LastEndpoint()))
	must(t, quick.Send(ctx, []byte("x")))
	_, err := router.Recv(ctx)
	must(t, err)
	if user := seen.Await(t, EventHandshakeSucceeded).Peer.UserID(); user != "quick" {
		t.Errorf("%q was let in", user)
	}
	within(t, "Close", func() { must(t, router.Close()) })
	if asking.Err() == nil {
		t.Error("the authenticator was not told of the end")
	}
}

// TestAuthenticateTimeout: a handshake's time includes the authenticator's.
func TestAuthenticateTimeout(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	release := make(chan struct{})
	router := bind(t, NewRouter, Options{
		Monitor: seen.Tell, HandshakeTimeout: 50 * time.Millisecond,
		// It does not even mind its context.
		Security: Security{Authenticate: func(context.Context, AuthRequest) (User, error) { <-release; return User{}, nil }},
	})
	r := dialRaw(t, router.LastEndpoint())
	_, _ = r.Conn.Write(greeting(1)) // it may be late already
	if e := seen.Await(t, EventHandshakeFailed); !errors.Is(e.Err, ErrHandshakeTimeout) {
		t.Errorf("%v", e.Err)
	}
	r.Ended()
	close(release)
}

// TestAllow: the ready-made authenticators let in exactly the keys and users that they know.
func TestAllow(t *testing.T) {
	t.Parallel()
	known, stranger := zmtp.GenerateKeyPair().Public, zmtp.GenerateKeyPair().Public
	keys := AllowKeys(known)
	users := AllowUsers(map[string]string{"user": "password", "open": ""})
	for name, c := range map[string]struct {
		authenticate Authenticator
		r            AuthRequest
		want         string
	}{
		"known key":      {keys, AuthRequest{Mechanism: "CURVE", key: known}, known.String()},
		"unknown key":    {keys, AuthRequest{Mechanism: "CURVE", key: stranger}, ""},
		"no key":         {keys, AuthRequest{Mechanism: "NULL"}, ""},
		"no keys at all": {AllowKeys(), AuthRequest{Mechanism: "CURVE"}, ""},
		"user":           {users, AuthRequest{Mechanism: "PLAIN", username: "user", password: "password"}, "user"},
		"no password":    {users, AuthRequest{Mechanism: "PLAIN", username: "open"}, "open"},
		"wrong password": {users, AuthRequest{Mechanism: "PLAIN", username: "user", password: "Password"}, ""},
		"missing":        {users, AuthRequest{Mechanism: "PLAIN", username: "user"}, ""},
		"unknown user":   {users, AuthRequest{Mechanism: "PLAIN", username: "other"}, ""},
		"no user":        {users, AuthRequest{Mechanism: "NULL"}, ""},
	} {
		user, err := c.authenticate(t.Context(), c.r)
		if user.ID != c.want || (c.want == "") != errors.Is(err, ErrDenied) {
			t.Errorf("%s: %q, %v", name, user.ID, err)
		}
	}
}
