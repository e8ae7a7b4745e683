//go:build unix && !linux

package command

import "syscall"

// endWithParent does nothing: the program continues if this process is killed.
func endWithParent(*syscall.SysProcAttr) {}
