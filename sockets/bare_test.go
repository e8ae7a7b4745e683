package sockets

import (
	"fmt"
	"net"
	"testing"
)

// bareListener accepts connections whose descriptor cannot be seen.
type bareListener struct{ net.Listener }

func (l bareListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ net.Conn }{nc}, nil
}

// TestBareConnection: sockets also work over connections that have no descriptor, as
// those of another transport may.
func TestBareConnection(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	rep := open(t, NewRep, Options{})
	endpoint := "tcp://" + nl.Addr().String()
	must(t, rep.core.Serve(bareListener{nl}, endpoint))
	req := open(t, NewReq, Options{})
	must(t, req.Connect(endpoint))
	for i := range 30 {
		text := fmt.Sprint(i)
		must(t, req.Send(ctx, []byte(text), make([]byte, 64<<10*(i%2))))
		m, err := rep.Recv(ctx)
		must(t, err)
		must(t, rep.Send(ctx, m...))
		m, err = req.Recv(ctx)
		must(t, err)
		if len(m) != 2 || string(m[0]) != text || len(m[1]) != 64<<10*(i%2) {
			t.Fatalf("%d: %d frames come back, the first is %q", i, len(m), m[0])
		}
	}
	// Messages sent before Close arrive.
	must(t, req.Send(ctx, []byte("last")))
	_, err = rep.Recv(ctx)
	must(t, err)
	must(t, rep.Send(ctx, make([]byte, 4<<20)))
	closed := make(chan error)
	go func() { closed <- rep.Close() }()
	m, err := req.Recv(ctx)
	must(t, err)
	if len(m[0]) != 4<<20 {
		t.Errorf("%d bytes", len(m[0]))
	}
	must(t, <-closed)
}
