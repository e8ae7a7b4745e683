package main

import (
	"testing"

	"clustermap/internal/command"
)

// TestSubmitReserved: a request for one of the broker's own services is a usage error.
func TestSubmitReserved(t *testing.T) {
	t.Parallel()
	zdev.Try(t, "submit", "mmi.service", "echo").Expect(t, command.ExitUsage, "mmi.")
}
