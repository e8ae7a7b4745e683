//go:build linux && !portable

package link

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// localSendBuffer is the most that the kernel's buffer for sending to a peer on
// the same machine may grow to. There is no way to fill, which growing is for: it
// only lets the sender be megabytes ahead, and what it sends is no longer in the
// processor's cache when the peer reads it. With half a megabyte messages of
// 64 KiB are faster by a fifth, those of 1 MiB by a third.
const localSendBuffer = 512 << 10

// growthLook is how many bytes go out between two looks at how large it is.
const growthLook = 4 << 20

// isLocal says that a connection's other end is on the same machine, and that it
// goes by way of TCP: the buffers of Unix domain sockets do not grow.
func isLocal(near, far net.Addr) bool {
	n, ok1 := near.(*net.TCPAddr)
	f, ok2 := far.(*net.TCPAddr)
	return ok1 && ok2 && (f.IP.IsLoopback() || f.IP.Equal(n.IP))
}

// BoundSendBuffer has the system's buffer for sending to a peer on the same machine not
// grow large, if the system lets one ask for that. It is called before the first Send.
func (s *Stream) BoundSendBuffer() {
	s.grows = s.raw != nil && isLocal(s.Conn.LocalAddr(), s.Conn.RemoteAddr()) && maxSendBuffer() >= localSendBuffer
}

// boundGrowth sets the kernel's buffer for sending to localSendBuffer, once it has
// grown beyond. Not before: connections that need little shall have little.
func (s *Stream) boundGrowth() {
	_ = s.raw.Control(func(fd uintptr) { // it fails on a closed connection
		// The kernel counts twice as much, for what it keeps beside the bytes.
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		if err == nil && n > 2*localSendBuffer {
			s.grows = false
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, localSendBuffer)
		}
	})
}

// maxSendBuffer is the largest buffer for sending that may be asked for. What
// asks for more gets a small one, for good, where the kernel's own choice may
// grow beyond; so 0 where the limit cannot be read.
var maxSendBuffer = sync.OnceValue(func() int {
	text, err := os.ReadFile("/proc/sys/net/core/wmem_max")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return n
})
