package commandtest

import (
	"os"
	"syscall"
	"testing"
)

// FillPipe writes to a pipe until it is full. Later writes to it block, including those
// of a process that inherits the pipe.
func FillPipe(t testing.TB, w *os.File) {
	t.Helper()
	fd := int(w.Fd()) // only once, because Fd makes the pipe blocking
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
	// A process that inherits the pipe shares this flag.
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}
