//go:build linux && !portable

package link

import (
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
// size. A peer that stops reading can make the sender run ahead by as much more.
const growthLook = localSendBuffer

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
