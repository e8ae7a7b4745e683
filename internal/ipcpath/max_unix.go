//go:build (linux || darwin || freebsd || netbsd || openbsd || dragonfly) && !portable

package ipcpath

import "golang.org/x/sys/unix"

// Max is the maximum size of the path of an ipc endpoint in bytes: that of the system's
// address, less the terminating zero.
const Max = len(unix.RawSockaddrUnix{}.Path) - 1
