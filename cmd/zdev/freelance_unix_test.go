//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/commandtest"
)

// A call goes to the next server if the first one is stopped or missing. If no server
// replies, it exits with 3 and reports the state of each server.
func TestFreelanceFailover(t *testing.T) {
	t.Parallel()
	first, one := startFreelance(t, "--echo")
	second, two := startFreelance(t, "--echo")
	first.Signal(syscall.SIGSTOP)
	o := commandtest.Object(t, zdev.Must(t, "freelance-call", "--server", one, "--server", two, "--json", "x"))
	if o["server"] != two {
		t.Errorf("%v", o)
	}
	first.Signal(syscall.SIGKILL)
	first.Wait()
	endsWell(t, second)
	o2 := zdev.Try(t, "freelance-call", "--server", one, "--server", two, "--timeout", "2s", "x")
	o2.Expect(t, command.ExitNoAnswer, "no reply within 2s")
	for _, endpoint := range []string{one, two} {
		if !strings.Contains(o2.Stderr, endpoint+": no connection (") {
			t.Errorf("%q", o2.Stderr)
		}
	}
}
