//go:build unix

package link

import (
	"math"
	"net"
	"syscall"
)

// Descriptors returns how many descriptors this process may have open at the same time:
// RLIMIT_NOFILE, which Go's runtime has raised to the hard limit when it started.
func Descriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || uint64(l.Cur) > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(l.Cur)
}

// Descriptor returns the number of a connection's descriptor, or -1 if it has none that
// is known. The system gives a new descriptor the lowest free number: when it was
// accepted, all lower ones were in use.
func Descriptor(nc net.Conn) int {
	number := -1
	if sc, ok := beneath(nc).(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { number = int(fd) }) // fails for a closed connection
		}
	}
	return number
}
