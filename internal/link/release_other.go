//go:build !linux

package link

import "syscall"

// release does nothing: these systems keep the address until the descriptor is closed.
func release(syscall.Conn) {}
