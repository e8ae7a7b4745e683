package link

import (
	"context"
	"io"
	"net"
	"testing"
)

// inverted is a connection whose bytes are not those on its descriptor.
type inverted struct{ net.Conn }

func (c inverted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	invert(b[:n])
	return n, err
}

func (c inverted) Write(b []byte) (int, error) {
	invert(b)
	defer invert(b)
	return c.Conn.Write(b)
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

type invertedListener struct{ net.Listener }

func (l invertedListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	return inverted{nc}, err
}

func init() {
	transports["inverted"] = transport{
		parse: parseTCP,
		listen: func(ctx context.Context, e Endpoint, o *Options) (*Listener, error) {
			l, err := listenTCP(ctx, e, o)
			if err == nil {
				l.Listener = invertedListener{l.Listener}
			}
			return l, err
		},
		dial: func(ctx context.Context, e Endpoint, o *Options) (net.Conn, error) {
			nc, err := dialTCP(ctx, e, o)
			return inverted{nc}, err
		},
	}
}

// TestTransport: a transport needs only a line in the table, even if its bytes differ
// from those that the system sends.
func TestTransport(t *testing.T) {
	t.Parallel()
	e, err := Parse("inverted://127.0.0.1:*", true)
	must(t, err)
	l, err := Listen(t.Context(), e, Options{})
	must(t, err)
	defer l.Close()
	if e, err = Parse(l.Endpoint, false); err != nil {
		t.Fatal(err)
	}
	nc, err := Dial(t.Context(), e, Options{})
	must(t, err)
	defer nc.Close()
	other, err := l.Accept()
	must(t, err)
	defer other.Close()
	var s Stream
	must(t, s.Init(nc))
	for _, c := range []struct {
		from io.Reader
		want string
	}{
		{other, "hello"},
		{other.(inverted).Conn, "\x97\x9a\x93\x93\x90"},
	} {
		if n, err := s.Send([][]byte{[]byte("he"), []byte("llo")}); n != 5 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		got := make([]byte, 5)
		_, err := io.ReadFull(c.from, got)
		must(t, err)
		if string(got) != c.want {
			t.Errorf("%q arrives, want %q", got, c.want)
		}
	}
}
