//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/loopback"
)

// A command that a signal ends before it is done says so, in the same words as the
// others, and exits with 1.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	nobody := "tcp://" + loopback.Own() + ":1"
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		for _, args := range [][]string{{"get", "k"}, {"set", "k", "v"}, {"watch"}} {
			p := start(t, append(args, "--server", nobody, "--timeout", "10m")...)
			p.Await("waiting up to 10m0s for a server")
			p.signal(sig)
			p.expectInterrupted()
		}
		p := start(t, "set", "k", "-", "--server", nobody)
		if _, err := p.stdin.Write(make([]byte, 1<<20)); err != nil { // more than a pipe holds: it reads
			t.Fatal(err)
		}
		p.signal(sig)
		p.expectInterrupted()
	}
}

// expectInterrupted waits for the end of a command that was interrupted.
func (p *process) expectInterrupted() {
	p.t.Helper()
	if code, text := p.wait(), p.stderr.String(); code != exitRefused || !strings.HasSuffix("\n"+text, "\nchp: interrupted\n") {
		p.t.Errorf("%s: exit code %d: %s", p.name(), code, text)
	}
}
