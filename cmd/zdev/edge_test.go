package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/command"
)

// Numbers that are too large for any machine, and times whose product overflows, are
// usage errors, and the error names the flag.
func TestFlagEdges(t *testing.T) {
	t.Parallel()
	zdev.Try(t, "worker", "x", "--echo", "--concurrency", "1000000000").Expect(t, command.ExitUsage, "--concurrency is at most")
	zdev.Try(t, "titanic", "--data", t.TempDir(), "--concurrency", "1000000000").Expect(t, command.ExitUsage, "--concurrency is at most")
	zdev.Try(t, "titanic", "--data", t.TempDir(), "--max-request", "1GiB").Expect(t, command.ExitUsage, "--max-request and --max-reply")
	zdev.Try(t, "broker", "--bind", "tcp://127.0.0.1:*", "--heartbeat", "1h", "--liveness", "2147483647").Expect(t, command.ExitUsage, "longer than 292 years")
}

// Errors of ipc endpoints describe the file; a tap without a queue is a usage error; and a
// Titanic server that cannot start prints only the reason.
func TestErrorsFit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	zdev.Try(t, "broker", "--bind", "ipc://"+dir+"/none/x").Expect(t, command.ExitRefused, "no such directory")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	zdev.Try(t, "broker", "--bind", "ipc://"+file).Expect(t, command.ExitRefused, "in use or not a socket")
	zdev.Try(t, "tap", "--frontend", "tcp://127.0.0.1:*", "--backend", "tcp://127.0.0.1:*", "--queue", "0").Expect(t, command.ExitUsage, "--queue 0")
	o := zdev.Try(t, "titanic", "--data", file)
	o.Expect(t, command.ExitRefused, "--data")
	if n := strings.Count(o.Stderr, "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, o.Stderr)
	}
}
