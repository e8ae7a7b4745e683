package engine

import (
	"net"
	"testing"

	"clustermap/zmtp"
)

// newWriter returns the writer of a connection whose peer has no bound.
func newWriter(c *conn, codec zmtp.Codec) *writer {
	w := &writer{pipe: &Pipe{socket: &Socket{pattern: new(Pattern)}}, conn: c, codec: codec}
	w.pipe.Out.Init(unbounded, false)
	return w
}

// connected returns the two ends of a connection.
func connected(t testing.TB) (ours *conn, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	other, err := l.Accept()
	must(t, err)
	c, err := newConn(nc, new(Config))
	must(t, err)
	t.Cleanup(func() {
		c.Finish()
		other.Close()
	})
	return c, other.(*net.TCPConn)
}
