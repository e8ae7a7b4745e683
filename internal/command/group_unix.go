//go:build unix

package command

import (
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// ownGroup makes the program run in a new process group, which is stopped when the
// context of cmd ends. The caller calls ended after cmd.Run.
func ownGroup(cmd *exec.Cmd, grace time.Duration) (ended func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	var mu sync.Mutex
	var over bool
	var timer *time.Timer
	// The number of the group belongs to no other group while Run has not returned.
	signal := func(s syscall.Signal) error {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return nil
		}
		return syscall.Kill(-cmd.Process.Pid, s)
	}
	cmd.Cancel = func() error {
		if grace == 0 {
			return signal(syscall.SIGKILL)
		}
		mu.Lock()
		timer = time.AfterFunc(grace, func() { _ = signal(syscall.SIGKILL) })
		mu.Unlock()
		return signal(syscall.SIGTERM)
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		if timer != nil {
			timer.Stop()
		}
	}
}
