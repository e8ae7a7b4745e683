package sockets

import (
	"os"

	"golang.org/x/sys/unix"
)

const haveBindToDevice = true

// bindToDevice lets a socket use one network interface only.
func bindToDevice(fd uintptr, device string) error {
	return os.NewSyscallError("setsockopt", unix.BindToDevice(int(fd), device))
}
