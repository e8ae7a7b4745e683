package testenv

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Silent makes the port of each address silent until the test ends: an attempt to connect
// to it is neither accepted nor refused. The addresses are of the kind 127.0.0.2.
func Silent(t testing.TB, port int, addresses ...string) {
	t.Helper()
	for _, text := range addresses {
		at := &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(text).As4()}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		Must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		Must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		Must(t, unix.Bind(fd, at))
		Must(t, unix.Listen(fd, 0))
		// The system drops what does not fit into its queue, which these fill.
		for range 4 {
			c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			Must(t, err)
			t.Cleanup(func() { unix.Close(c) })
			if err := unix.Connect(c, at); err != nil && err != unix.EINPROGRESS {
				Must(t, err)
			}
		}
	}
}
