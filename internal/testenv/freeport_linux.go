package testenv

import (
	"testing"

	"golang.org/x/sys/unix"
)

// FreePort returns a port of 127.0.0.1 on which nothing listens. It stays the test's
// own until the test ends, also while no socket listens on it: the system assigns it to
// no other process. The test, and programs that it starts, may listen on it again and
// again.
func FreePort(t testing.TB) int {
	t.Helper()
	// Sockets that allow it may share a port as long as only one of them listens. Go and
	// libzmq allow it for all that listen. The system chooses no port that is bound.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	Must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	Must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	Must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(fd)
	Must(t, err)
	return name.(*unix.SockaddrInet4).Port
}
