//go:build linux && (386 || s390x) && !portable

package link

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// On these machines, old kernels have a single system call, socketcall, for all
// socket operations. The numbers are from linux/net.h.
const (
	callSendTo  = 11
	callSendMsg = 16
)

// sendBytes is described in send_linux.go.
func sendBytes(fd uintptr, b []byte) (int, syscall.Errno) {
	n, errno := socketCall(callSendTo, &[6]uintptr{fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL})
	runtime.KeepAlive(b)
	return n, errno
}

// sendVector is described in send_linux.go.
func sendVector(fd uintptr, v *vector) (int, syscall.Errno) {
	n, errno := socketCall(callSendMsg, &[6]uintptr{fd, uintptr(unsafe.Pointer(&v.header)), unix.MSG_NOSIGNAL})
	runtime.KeepAlive(v)
	return n, errno
}

// socketCall performs the operation with the given number. The memory to which the
// elements of args point must be on the heap, where it does not move.
func socketCall(number uintptr, args *[6]uintptr) (int, syscall.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_SOCKETCALL, number, uintptr(unsafe.Pointer(args)), 0)
	return int(n), errno
}
