package main

import (
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/loopback"
)

// TestNoBrokerReason: if there is no reply because there is no broker, the error has the
// reason.
func TestNoBrokerReason(t *testing.T) {
	t.Parallel()
	at := "tcp://" + loopback.Own() + ":5555"
	for _, args := range [][]string{{"request", "echo", "body"}, {"services"}, {"submit", "echo", "body"}} {
		zdev.Try(t, append(args, "--broker", at, "--timeout", "2s")...).Expect(t, command.ExitNoAnswer, "refused")
	}
}
