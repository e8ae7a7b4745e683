//go:build !portable

package sockets

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const haveBindToDevice = true

// bindToDevice lets a socket use one network interface only.
func bindToDevice(fd uintptr, device string) error {
	return os.NewSyscallError("setsockopt", unix.BindToDevice(int(fd), device))
}

// maxSendBuffer is the largest buffer for sending that may be asked for. What
// asks for more gets a small one, for good, where the kernel's own choice may
// grow beyond; so 0 where the limit cannot be read.
var maxSendBuffer = sync.OnceValue(func() int {
	text, err := os.ReadFile("/proc/sys/net/core/wmem_max")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return n
})
