package zmtp

import (
	"strings"
	"testing"
)

// TestReadyBytes checks the exact bytes of READY.
func TestReadyBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config HandshakeConfig
		size   int
		want   string
	}{
		{HandshakeConfig{SocketType: TypeDealer}, 43,
			"\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"},
		{HandshakeConfig{SocketType: TypeSub, Identity: []byte("unused")}, 27,
			"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"},
		{HandshakeConfig{SocketType: TypeRouter, Identity: []byte("me"), Metadata: Metadata{{"X-CHP", []byte("1")}}}, 56,
			"\x04\x36\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x02me\x05X-CHP\x00\x00\x00\x011"},
		{HandshakeConfig{SocketType: TypePub, Metadata: Metadata{{"X-long", []byte(strings.Repeat("v", 300))}}}, 345,
			"\x06\x00\x00\x00\x00\x00\x00\x01\x50\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB\x06X-long\x00\x00\x01\x2c" + strings.Repeat("v", 300)},
	} {
		got, err := NewNull(c.config.AppendProperties(nil)).Start(nil)
		if err != nil || string(got) != c.want || len(got) != c.size {
			t.Errorf("%v: %d bytes %x, want %x", c.config.SocketType, len(got), got, c.want)
		}
	}
}

func TestNull(t *testing.T) {
	t.Parallel()
	m := NewNull(nil)
	if m.Name() != "NULL" {
		t.Error(m.Name())
	}
	for _, name := range []string{"HELLO", "ready", "PING", "READYX"} {
		_, done, err := m.Step(nil, Command{Name: []byte(name)})
		if done {
			t.Errorf("%s: done", name)
		}
		wantError(t, err, ErrMalformed)
	}
	_, done, err := m.Step(nil, Command{Name: []byte("READY"), Data: []byte("\x01")})
	if done {
		t.Error("done with malformed metadata")
	}
	wantError(t, err, ErrMalformed)

	data := AppendProperty(nil, "X-a", []byte("1"))
	out, done, err := m.Step([]byte("x"), Command{Name: []byte("READY"), Data: data})
	if string(out) != "x" || !done || err != nil {
		t.Fatal(out, done, err)
	}
	clear(data)
	if v, ok := m.Peer().Get("x-A"); !ok || string(v) != "1" {
		t.Errorf("%q %v", v, ok)
	}
}
