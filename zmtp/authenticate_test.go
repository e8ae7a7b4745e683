package zmtp

import (
	"errors"
	"testing"
)

// waiting returns a NULL handshake that waits for Accept or Deny.
func waiting(t *testing.T, more string) *Handshake {
	t.Helper()
	c := HandshakeConfig{SocketType: TypeDealer}
	c.Mechanism = NewNullAuth(c.AppendProperties(nil))
	h := NewHandshake(c)
	if _, waiting := h.Credentials(); waiting {
		t.Fatal("waiting before the greeting")
	}
	out, rest, done, err := step(h, greetingBytes+more, 7)
	if len(out) != 0 || rest != more || done || err != nil {
		t.Fatalf("sent %q, rest %q, %v %v", out, rest, done, err)
	}
	c2, waiting := h.Credentials()
	if !waiting || c2.Mechanism != "NULL" || len(c2.Values) != 0 {
		t.Fatalf("%+v %v", c2, waiting)
	}
	return h
}

func TestHandshakeAccept(t *testing.T) {
	t.Parallel()
	h := waiting(t, routerReady)
	granted := Metadata{{"Role", []byte("admin")}}
	out, done, err := h.Accept([]byte("x"), "bob", granted)
	if len(out) != 1+43 || done || err != nil {
		t.Fatalf("%q %v %v", out, done, err)
	}
	if _, waiting := h.Credentials(); waiting {
		t.Error("still waiting")
	}
	if out, done, err := h.Accept(nil, "eve", nil); len(out) != 0 || done || err != nil {
		t.Errorf("again: %q %v %v", out, done, err)
	}
	if out, err := h.Deny(nil, StatusDenied); len(out) != 0 || err != nil {
		t.Errorf("then Deny: %q %v", out, err)
	}
	if _, _, done, err = step(h, routerReady, 100); !done || err != nil {
		t.Fatal(done, err)
	}
	p := h.Peer()
	if v, _ := p.Granted.Get("role"); p.UserID != "bob" || string(v) != "admin" || p.SocketType != TypeRouter {
		t.Errorf("%+v", p)
	}
	if h.Codec() != nil {
		t.Error("a codec")
	}
}

func TestHandshakeDeny(t *testing.T) {
	t.Parallel()
	for status, sent := range map[string]string{
		StatusTemporary: "",
		StatusDenied:    "\x04\x0a\x05ERROR\x03400",
		StatusFailed:    "\x04\x0a\x05ERROR\x03500",
		StatusAccepted:  "",
		"nonsense":      "",
	} {
		h := waiting(t, "")
		out, err := h.Deny(nil, status)
		wantError(t, err, ErrDenied)
		var p *ProtocolError
		if string(out) != sent || !errors.As(err, &p) || p.Reason != status {
			t.Errorf("%s: %q %v", status, out, err)
		}
		if _, _, _, again := h.Step([]byte(routerReady), nil); again != err {
			t.Errorf("%s: then %v", status, again)
		}
		if _, done, again := h.Accept(nil, "", nil); again != err || done {
			t.Errorf("%s: then %v", status, again)
		}
	}
}
