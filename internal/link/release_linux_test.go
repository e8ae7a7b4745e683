package link

import (
	"net"
	"testing"
)

// TestRelease: an address is free after Close although the socket has another descriptor,
// as it has in a process that is being started. A listener of the caller's may be shared
// with another process on purpose, and goes on there.
func TestRelease(t *testing.T) {
	t.Parallel()
	e, err := Parse("tcp://127.0.0.1:*", true)
	must(t, err)
	l, err := Listen(t.Context(), e, Options{})
	must(t, err)
	other, err := l.Listener.(*net.TCPListener).File()
	must(t, err)
	defer other.Close()
	must(t, l.Close())
	e, err = Parse(l.Endpoint, true)
	must(t, err)
	var lc net.ListenConfig
	l, err = Listen(t.Context(), e, Options{ListenWith: lc.Listen})
	must(t, err)
	shared, err := l.Listener.(*net.TCPListener).File()
	must(t, err)
	defer shared.Close()
	must(t, l.Close())
	nc, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	nc.Close()
}
