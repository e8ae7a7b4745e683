package zmtp

import (
	"strings"
	"testing"
)

// plainPair returns both sides of PLAIN, a DEALER and a ROUTER.
func plainPair(username, password string) (client, server *side) {
	c := HandshakeConfig{SocketType: TypeDealer, Identity: []byte("me")}
	c.Mechanism = NewPlainClient(c.AppendProperties(nil), username, password)
	s := HandshakeConfig{SocketType: TypeRouter}
	s.Mechanism = NewPlainServer(s.AppendProperties(nil))
	return &side{h: NewHandshake(c)}, &side{h: NewHandshake(s)}
}

// TestPlainBytes checks the exact bytes of each command.
func TestPlainBytes(t *testing.T) {
	t.Parallel()
	client, server := plainPair("admin", "secret")
	converse(client, server, 1000, func(h *Handshake, c Credentials) ([]byte, bool, error) {
		if c.Mechanism != "PLAIN" || len(c.Values) != 2 || string(c.Values[0]) != "admin" || string(c.Values[1]) != "secret" {
			t.Errorf("%q", c)
		}
		return h.Accept(nil, "root", nil)
	})
	if !client.done || !server.done {
		t.Fatal(client.err, server.err)
	}
	wantClient := "\x04\x13\x05HELLO\x05admin\x06secret" +
		"\x04\x2e\x08INITIATE\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x02me"
	wantServer := "\x04\x08\x07WELCOME" +
		"\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"
	if string(client.sent[GreetingSize:]) != wantClient {
		t.Errorf("client %q", client.sent[GreetingSize:])
	}
	if string(server.sent[GreetingSize:]) != wantServer {
		t.Errorf("server %q", server.sent[GreetingSize:])
	}
	gc, _, _ := ParseGreeting(client.sent)
	gs, _, _ := ParseGreeting(server.sent)
	if gc.Mechanism != "PLAIN" || gc.AsServer || gs.Mechanism != "PLAIN" || !gs.AsServer {
		t.Errorf("greetings %+v %+v", gc, gs)
	}
	if p := server.h.Peer(); p.UserID != "root" || p.SocketType != TypeDealer || string(p.Identity) != "me" {
		t.Errorf("%+v", p)
	}
	if p := client.h.Peer(); p.SocketType != TypeRouter {
		t.Errorf("%+v", p)
	}
	if client.h.Codec() != nil || server.h.Codec() != nil {
		t.Error("a codec")
	}
}

func TestPlainPieces(t *testing.T) {
	t.Parallel()
	for piece := 1; piece <= 140; piece++ {
		for _, word := range []string{"", strings.Repeat("w", 255)} {
			client, server := plainPair(word, word)
			converse(client, server, piece, admit)
			if !client.done || !server.done {
				t.Fatal(piece, client.err, server.err)
			}
		}
	}
}

func TestPlainDenied(t *testing.T) {
	t.Parallel()
	for _, status := range []string{StatusDenied, StatusFailed, StatusTemporary} {
		client, server := plainPair("a", "b")
		converse(client, server, 7, func(h *Handshake, _ Credentials) ([]byte, bool, error) {
			out, err := h.Deny(nil, status)
			return out, false, err
		})
		wantError(t, server.err, ErrDenied)
		if status == StatusTemporary {
			if client.err != nil || len(server.sent) != GreetingSize {
				t.Errorf("client %v, server sent %q", client.err, server.sent)
			}
			continue
		}
		wantError(t, client.err, ErrRefused)
		if p := client.err.(*ProtocolError); p.Reason != status {
			t.Error(p)
		}
	}
}

func TestPlainConfig(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("w", 256)
	for _, words := range [][2]string{{long, ""}, {"", long}} {
		client, server := plainPair(words[0], words[1])
		converse(client, server, 100, admit)
		wantError(t, client.err, ErrConfig)
		if len(client.sent) != GreetingSize {
			t.Errorf("sent %q", client.sent)
		}
	}
}

// TestPlainErrors sends invalid commands to each side.
func TestPlainErrors(t *testing.T) {
	t.Parallel()
	greeting := string(AppendGreeting(nil, Greeting{Major: 3, Minor: 1, Mechanism: "PLAIN"}))
	command := func(name, data string) string { return string(AppendCommand(nil, name, []byte(data))) }
	hello, welcome := command("HELLO", "\x01a\x01b"), command("WELCOME", "")
	initiate := command("INITIATE", "")
	pub := string(AppendProperty(nil, PropertySocketType, []byte("PUB")))
	for _, c := range []struct {
		name   string
		server bool
		in     string
		want   error
		sent   string // at last
	}{
		{"INITIATE before HELLO", true, initiate, ErrMalformed, ""},
		{"READY to a server", true, command("READY", ""), ErrMalformed, ""},
		{"ERROR to a server", true, string(AppendError(nil, "400")), ErrMalformed, ""},
		{"unknown to a server", true, command("HELLOO", "\x01a\x01b"), ErrMalformed, ""},
		{"HELLO twice", true, hello + hello, ErrMalformed, ""},
		{"WELCOME to a server", true, hello + welcome, ErrMalformed, ""},
		{"empty HELLO", true, command("HELLO", ""), ErrMalformed, ""},
		{"HELLO without password", true, command("HELLO", "\x01a"), ErrMalformed, ""},
		{"HELLO, user name cut", true, command("HELLO", "\x05a\x01b"), ErrMalformed, ""},
		{"HELLO, password cut", true, command("HELLO", "\x01a\x02b"), ErrMalformed, ""},
		{"HELLO with more", true, command("HELLO", "\x01a\x01b\x00"), ErrMalformed, ""},
		{"INITIATE, bad metadata", true, hello + command("INITIATE", "\x05"), ErrMalformed, ""},
		{"INITIATE, wrong type", true, hello + command("INITIATE", pub), ErrIncompatible,
			"\x04\x25\x5ERROR\x1fSocket-Type does not fit ROUTER"},
		{"message to a server", true, hello + "\x00\x00", ErrMalformed, ""},
		{"READY before WELCOME", false, command("READY", ""), ErrMalformed, ""},
		{"HELLO to a client", false, hello, ErrMalformed, ""},
		{"WELCOME with data", false, command("WELCOME", "x"), ErrMalformed, ""},
		{"WELCOME twice", false, welcome + welcome, ErrMalformed, ""},
		{"READY, bad metadata", false, welcome + command("READY", "\x05"), ErrMalformed, ""},
		{"READY, wrong type", false, welcome + command("READY", pub), ErrIncompatible, ""},
		{"ERROR", false, string(AppendError(nil, "400")), ErrRefused, ""},
		{"ERROR after WELCOME", false, welcome + string(AppendError(nil, "500")), ErrRefused, ""},
		{"malformed ERROR", false, command("ERROR", "\x05"), ErrMalformed, ""},
		{"ERROR of libzmq", false, "\x04\x09\x5ERROR\x03400", ErrRefused, ""},
		{"ERROR of libzmq, malformed", false, "\x04\x08\x5ERROR\x0340", ErrMalformed, ""},
		{"ERROR of libzmq to a server", true, "\x04\x09\x5ERROR\x03400", ErrMalformed, ""},
		{"message to a client", false, welcome + "\x00\x00", ErrMalformed, ""},
	} {
		for _, piece := range []int{1, 1000} {
			client, server := plainPair("a", "b")
			s := client
			if c.server {
				s = server
			}
			s.h.Start(nil)
			for in := greeting + c.in; in != "" && s.err == nil; {
				n := min(piece, len(in))
				s.in = append(s.in, in[:n]...)
				in = in[n:]
				s.take(admit)
			}
			if s.done {
				t.Errorf("%s: done", c.name)
				continue
			}
			wantError(t, s.err, c.want)
			if !strings.HasSuffix(string(s.sent), c.sent) || c.sent == "" && strings.Contains(string(s.sent), "RROR") {
				t.Errorf("%s: sent %q", c.name, s.sent)
			}
		}
	}
}
