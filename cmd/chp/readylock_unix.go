//go:build unix

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// hold locks a file for as long as this process has it open: until it ends, however it
// ends. On a file system without locks it does nothing.
func hold(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// held reports whether a process holds a regular file.
func held(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
