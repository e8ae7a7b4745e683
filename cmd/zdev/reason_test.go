package main

import (
	"net"
	"testing"

	"clustermap/internal/command"
)

// TestNoBrokerReason: if there is no reply because there is no broker, the error has the
// reason.
func TestNoBrokerReason(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "tcp://" + l.Addr().String()
	l.Close()
	for _, args := range [][]string{{"request", "echo", "body"}, {"services"}, {"submit", "echo", "body"}} {
		zdev.Try(t, append(args, "--broker", at, "--timeout", "300ms")...).Expect(t, command.ExitNoAnswer, "refused")
	}
}
