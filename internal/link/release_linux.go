package link

import "syscall"

// release makes the address of a listening socket free before its descriptor is closed.
// Closing alone frees it only when no process has the descriptor any more, and a process
// that this one starts has all its descriptors until it executes its program: a server
// that restarts meanwhile would find its address in use.
func release(sc syscall.Conn) {
	if raw, err := sc.SyscallConn(); err == nil {
		_ = controlRaw(raw, func(fd uintptr) error { return syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
}
