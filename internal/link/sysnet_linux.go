//go:build !portable

package link

import (
	"os"

	"golang.org/x/sys/unix"
)

// HaveDevice reports whether Options.Device is supported.
const HaveDevice = true

// bindToDevice restricts a socket to one network interface.
func bindToDevice(fd uintptr, device string) error {
	return os.NewSyscallError("setsockopt", unix.BindToDevice(int(fd), device))
}
