//go:build unix

package freelance

import (
	"os"
	"syscall"
	"testing"
)

// suspend stops a process until resume is called.
func suspend(t testing.TB, p *os.Process) (resume func()) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("not stopped: %v, %v", status, err)
	}
	return func() {
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
}
