//go:build !portable

package link

import (
	"os"

	"golang.org/x/sys/unix"
)

// HaveDevice says that a socket can be bound to a network interface.
const HaveDevice = true

// bindToDevice lets a socket use one network interface only.
func bindToDevice(fd uintptr, device string) error {
	return os.NewSyscallError("setsockopt", unix.BindToDevice(int(fd), device))
}
