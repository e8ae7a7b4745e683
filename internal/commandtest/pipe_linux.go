package commandtest

import (
	"os"
	"syscall"
	"testing"
)

// FillPipe writes to a pipe until it is full. Afterwards writes to it block, also those
// of a process that inherits it.
func FillPipe(t testing.TB, w *os.File) {
	t.Helper()
	fd := int(w.Fd()) // only once: it makes the pipe blocking
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{4096, 1} {
		for {
			if _, err := syscall.Write(fd, make([]byte, size)); err != nil {
				break
			}
		}
	}
	// The flag belongs to the pipe, not to the descriptor: the process shares it.
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}
