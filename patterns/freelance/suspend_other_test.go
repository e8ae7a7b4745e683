//go:build !unix

package freelance

import (
	"os"
	"testing"
)

func suspend(t testing.TB, _ *os.Process) (resume func()) {
	t.Helper()
	t.Skip("no SIGSTOP on this system")
	return nil
}
