package zmtp

import (
	"errors"
	"testing"
	"time"
)

// TestCookieLifetime: a CURVE server accepts INITIATE for at most 60 seconds
// after its WELCOME, even if configured with more; then it erases the cookie's key.
func TestCookieLifetime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		configured, late time.Duration
		expired          bool
	}{
		{0, CookieLifetime - 1, false},
		{0, CookieLifetime, true},
		{time.Hour, CookieLifetime, true},
		{time.Second, time.Second - 1, false},
		{time.Second, time.Second, true},
	} {
		ck, sk := vectorKeys()
		cc := HandshakeConfig{SocketType: TypeDealer}
		cc.Mechanism = NewCurveClient(CurveClientConfig{Properties: cc.AppendProperties(nil), Keys: ck, Server: sk.Public})
		client := NewHandshake(cc)
		sc := HandshakeConfig{SocketType: TypeRouter}
		sm := NewCurveServer(CurveServerConfig{Properties: sc.AppendProperties(nil), Keys: sk, CookieLifetime: c.configured})
		clock := time.Unix(1000, 0)
		sm.now = func() time.Time { return clock }
		sc.Mechanism = sm
		server := NewHandshake(sc)

		toServer, toClient := client.Start(nil), server.Start(nil)
		feed := func(h *Handshake, in []byte) (out []byte, err error) {
			for len(in) > 0 && err == nil {
				var n int
				n, out, _, err = h.Step(in, out)
				if n == 0 {
					break
				}
				in = in[n:]
			}
			return out, err
		}
		more, err := feed(client, toClient) // HELLO
		if err != nil {
			t.Fatal(err)
		}
		if !server.Expires().IsZero() {
			t.Error("there is a cookie before HELLO")
		}
		welcome, err := feed(server, append(toServer, more...))
		if err != nil || sm.want != commandInitiate || sm.cookieKey == (secretKey{}) {
			t.Fatal(err, sm.want)
		}
		if life := server.Expires().Sub(clock); life > CookieLifetime || c.configured == time.Second && life != time.Second {
			t.Errorf("configured %v: the cookie lives for %v", c.configured, life)
		}
		initiate, err := feed(client, welcome)
		if err != nil {
			t.Fatal(err)
		}
		clock = clock.Add(c.late)
		_, err = feed(server, initiate)
		if _, waiting := server.Credentials(); errors.Is(err, ErrCryptographic) != c.expired || waiting == c.expired {
			t.Errorf("%v after WELCOME, configured %v: %v", c.late, c.configured, err)
		}
		if sm.cookieKey != (secretKey{}) {
			t.Error("the cookie's key is still there")
		}
	}
}

// TestHandshakeAbandon: Abandon erases all keys.
func TestHandshakeAbandon(t *testing.T) {
	t.Parallel()
	_, sk := vectorKeys()
	c := HandshakeConfig{SocketType: TypeRouter}
	sm := NewCurveServer(CurveServerConfig{Keys: sk})
	c.Mechanism = sm
	h := NewHandshake(c)
	h.Abandon()
	if !sm.config.Keys.Secret.IsZero() {
		t.Error("the long-term key is still there")
	}
	if _, _, _, err := h.Step([]byte("x"), nil); !errors.Is(err, ErrAbandoned) {
		t.Errorf("Step: %v", err)
	}
}

// TestHelloBound: the first command of a client may have at most one KiB.
func TestHelloBound(t *testing.T) {
	t.Parallel()
	_, sk := vectorKeys()
	for name, m := range map[string]Mechanism{"PLAIN": NewPlainServer(nil), "CURVE": NewCurveServer(CurveServerConfig{Keys: sk})} {
		h := NewHandshake(HandshakeConfig{SocketType: TypeRouter, Mechanism: m})
		n, _, _, err := h.Step(AppendGreeting(nil, Greeting{Major: 3, Minor: 1, Mechanism: name}), nil)
		if n != GreetingSize || err != nil {
			t.Fatal(n, err)
		}
		if _, _, _, err = h.Step(AppendHeader(nil, FlagCommand, 1024), nil); err != nil {
			t.Errorf("%s: a command of 1 KiB: %v", name, err)
		}
		_, _, _, err = h.Step(AppendHeader(nil, FlagCommand, 1025), nil)
		wantError(t, err, ErrTooLarge)
	}
}
