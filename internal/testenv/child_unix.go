//go:build unix

package testenv

import "syscall"

// Suspend stops the child (SIGSTOP) until resume is called.
func (c *Child) Suspend() (resume func()) {
	c.t.Helper()
	Must(c.t, c.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		c.t.Fatalf("not stopped: %v, %v", status, err)
	}
	return func() {
		if err := c.Process.Signal(syscall.SIGCONT); err != nil {
			c.t.Error(err)
		}
	}
}
