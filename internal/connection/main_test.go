package connection

import (
	"net"
	"testing"

	"clustermap/internal/testenv"

	"go.uber.org/goleak"
)

var (
	testContext = testenv.Context
	must        = testenv.Must
	eventually  = testenv.Eventually
	within      = testenv.Within
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connected returns the two ends of a connection.
func connected(t testing.TB) (ours *Conn, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	other, err := l.Accept()
	must(t, err)
	c := new(Conn)
	must(t, c.Init(nc))
	t.Cleanup(func() {
		c.Finish()
		other.Close()
	})
	return c, other.(*net.TCPConn)
}
