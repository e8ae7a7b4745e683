//go:build linux && !portable

package link

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// BoundSendBuffer limits the size of the kernel's send buffer for a peer on the same
// machine, if the system allows it. The buffers of Unix domain sockets do not grow. It must be called before the first Send.
func (s *Stream) BoundSendBuffer() {
	s.grows = s.raw != nil && isLocal(s.Conn.LocalAddr(), s.Conn.RemoteAddr()) && maxSendBuffer() >= localSendBuffer
}

// boundGrowth sets the size of the kernel's send buffer to localSendBuffer once it
// has become larger, so that a connection that needs little keeps a small buffer.
func (s *Stream) boundGrowth() {
	_ = s.raw.Control(func(fd uintptr) { // fails only on a closed connection
		// The kernel doubles the size to allow for its own data.
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		if err == nil && n > 2*localSendBuffer {
			s.grows = false
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, localSendBuffer)
		}
	})
}

// maxSendBuffer returns the largest send buffer that a program may request, or 0 if
// unknown. A larger request would set the buffer to this size for good, while the
// kernel's own choice may grow beyond it.
var maxSendBuffer = sync.OnceValue(func() int {
	text, _ := os.ReadFile("/proc/sys/net/core/wmem_max")
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
})
