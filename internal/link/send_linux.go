//go:build linux && !386 && !s390x && !portable

package link

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MSG_NOSIGNAL matters where this package is part of a C program: without it, a
// write to a peer that has gone would end the program with SIGPIPE.

// sendBytes sends b, or as much of it as there is room for.
func sendBytes(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// sendVector sends the pieces of v.
func sendVector(fd uintptr, v *vector) (int, syscall.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&v.header)), unix.MSG_NOSIGNAL)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
