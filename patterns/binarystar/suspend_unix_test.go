//go:build unix

package binarystar

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
	return func() {
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
}
