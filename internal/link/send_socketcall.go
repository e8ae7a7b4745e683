//go:build linux && (386 || s390x) && !portable

package link

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// On these machines old kernels have one system call, socketcall, for all calls of
// sockets. The numbers are from linux/net.h.
const (
	callSendTo  = 11
	callSendMsg = 16
)

// sendBytes sends b, or as much of it as there is room for; see send_linux.go.
func sendBytes(fd uintptr, b []byte) (int, syscall.Errno) {
	n, errno := socketCall(callSendTo, &[6]uintptr{fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL})
	runtime.KeepAlive(b)
	return n, errno
}

// sendVector sends the pieces of v.
func sendVector(fd uintptr, v *vector) (int, syscall.Errno) {
	n, errno := socketCall(callSendMsg, &[6]uintptr{fd, uintptr(unsafe.Pointer(&v.header)), unix.MSG_NOSIGNAL})
	runtime.KeepAlive(v)
	return n, errno
}

// socketCall makes the call with the given number. The memory that args points to
// must be on the heap, where it does not move.
func socketCall(number uintptr, args *[6]uintptr) (int, syscall.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_SOCKETCALL, number, uintptr(unsafe.Pointer(args)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
