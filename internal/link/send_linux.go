//go:build linux && !386 && !s390x && !portable

package link

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MSG_NOSIGNAL matters if this package is part of a C program: without it, a write
// to a closed connection would end the program with SIGPIPE.

// sendBytes sends b, or as much of it as the kernel accepts. The number is not
// valid with an error.
func sendBytes(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// sendVector sends the pieces of v, or as much as the kernel accepts.
func sendVector(fd uintptr, v *vector) (int, syscall.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&v.header)), unix.MSG_NOSIGNAL)
	return int(n), errno
}
