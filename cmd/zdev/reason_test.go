package main

import (
	"net"
	"testing"

	"clustermap/internal/command"
	"clustermap/internal/loopback"
)

// TestNoBrokerReason: if there is no reply because there is no broker, or somebody who accepts
// connections and sends nothing, the error says so.
func TestNoBrokerReason(t *testing.T) {
	t.Parallel()
	at := "tcp://" + loopback.Own() + ":5555"
	mute, err := net.Listen("tcp", loopback.Own()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for _, args := range [][]string{{"request", "echo", "body"}, {"services"}, {"submit", "echo", "body"}} {
		zdev.Try(t, append(args, "--broker", at, "--timeout", "2s")...).Expect(t, command.ExitNoAnswer, "connection refused")
		zdev.Try(t, append(args, "--broker", "tcp://"+mute.Addr().String(), "--timeout", "2s")...).Expect(t, command.ExitNoAnswer, "somebody accepts connections there, and is silent")
	}
}
