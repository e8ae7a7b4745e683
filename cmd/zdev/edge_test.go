package main

import (
	"testing"

	"clustermap/internal/command"
)

// Numbers that no machine has room for, and times whose product is no time any more, are
// wrong usage, and the error names the flag.
func TestFlagEdges(t *testing.T) {
	t.Parallel()
	zdev.Try(t, "worker", "x", "--echo", "--concurrency", "1000000000").Expect(t, command.ExitUsage, "--concurrency is at most")
	zdev.Try(t, "titanic", "--data", t.TempDir(), "--concurrency", "1000000000").Expect(t, command.ExitUsage, "--concurrency is at most")
	zdev.Try(t, "titanic", "--data", t.TempDir(), "--max-request", "1GiB").Expect(t, command.ExitUsage, "--max-request and --max-reply")
	zdev.Try(t, "broker", "--bind", "tcp://127.0.0.1:*", "--heartbeat", "1h", "--liveness", "2147483647").Expect(t, command.ExitUsage, "longer than 292 years")
}
