//go:build linux && (386 || s390x) && !portable

package sockets

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// On these machines all calls of sockets are one, as old kernels have no other.
// Its numbers are those of linux/net.h.
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

// socketCall makes a call. What its arguments point to is on the heap, so it stays
// where it is.
func socketCall(number uintptr, args *[6]uintptr) (int, syscall.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_SOCKETCALL, number, uintptr(unsafe.Pointer(args)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
