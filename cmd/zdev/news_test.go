package main

import (
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/commandtest"
)

// TestNoBroker: a worker and a Titanic server report a missing broker in one line,
// however many connections they try, and report when they are connected; also when the
// broker ends later.
func TestNoBroker(t *testing.T) {
	t.Parallel()
	// Not TCP: a port that was free may have another user when the broker begins.
	at := "ipc://" + filepath.Join(t.TempDir(), "broker")
	devices := []*commandtest.Process{
		zdev.Start(t, "worker", "echo", "--echo", "--concurrency", "4", "--broker", at),
		zdev.Start(t, "titanic", "--data", t.TempDir(), "--concurrency", "4", "--broker", at),
	}
	const lost, found = `no connection to the broker at ipc://\S+: .*\n`, `connected to the broker at .*\n`
	for _, p := range devices {
		p.Await(lost)
	}
	broker := zdev.Start(t, "broker", "--bind", at)
	broker.Ready()
	for _, p := range devices {
		p.Ready()
		p.Await(found)
	}
	endsWell(t, broker)
	for _, p := range devices {
		p.Await(`(?s)` + lost + `.*` + found + `.*` + lost)
		endsWell(t, p)
		if n := strings.Count(p.Stderr.String(), "\n"); n > 7 {
			t.Errorf("%s: %d lines:\n%s", p.Name, n, p.Stderr.String())
		}
	}
}
