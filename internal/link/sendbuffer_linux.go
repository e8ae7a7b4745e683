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

// localSendBuffer is the maximum size to which the operating system's send
// buffer for a peer on the same machine may grow. A larger buffer serves to
// fill a long network path, which does not exist here: it would only let the
// sender run megabytes ahead, and the bytes would have left the processor's
// cache by the time the peer reads them. With half a megabyte, messages of 64
// KiB are a fifth faster and messages of 1 MiB a third.
const localSendBuffer = 512 << 10

// growthLook is how many bytes are written between two checks of the buffer's
// size.
const growthLook = 4 << 20

// isLocal reports whether a connection uses TCP and its other end is on the
// same machine. The buffers of Unix domain sockets do not grow.
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
