//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup has the command run in a process group of its own, which is killed as a
// whole when its context ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	cmd.Cancel = func() error {
		// The group is the child's: it is not awaited yet, so no other process has
		// its number.
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
