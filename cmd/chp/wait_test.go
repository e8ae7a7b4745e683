package main

import (
	"net"
	"strings"
	"testing"

	"clustermap/internal/loopback"
)

// It waits for a server that is not there yet, and says which one serves.
func TestWaitCommand(t *testing.T) {
	t.Parallel()
	host := loopback.Own()
	endpoint := "tcp://" + net.JoinHostPort(host, "5556")
	w := start(t, "wait", "--timeout", "60s", "--server", endpoint)
	w.Await("waiting up to 1m0s for a server to start")
	serve(t, "--host", host, "--port", "5556")
	if got := w.line(); got != endpoint {
		t.Errorf("%q", got)
	}
	if code := w.wait(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	try(t, "wait", "--in-sync", "--server", endpoint).expect(t, exitRefused, endpoint+" is not part of a pair")
	try(t, "wait", "--timeout", "300ms", "--server", "tcp://127.0.0.1:1").expect(t, exitNoServer, "tcp://127.0.0.1:1")
}

// It makes a server of a pair active that waits for a client, and with --in-sync waits for the other
// one.
func TestWaitForAPair(t *testing.T) {
	t.Parallel()
	host := loopback.Own()
	pair := []string{"serve", "--host", host, "--bstar-interval", "100ms"}
	primary := start(t, append(pair, "--primary")...)
	at := primary.ready()
	both := []string{"--server", at, "--server", strings.Replace(at, ":5556", ":5566", 1)}
	if got := must(t, append([]string{"wait"}, both...)...); got != at+"\n" {
		t.Errorf("%q", got)
	}
	try(t, append([]string{"wait", "--in-sync", "--timeout", "500ms"}, both...)...).expect(t, exitNoServer, "the servers are not in sync within 500ms")
	start(t, append(pair, "--backup")...).ready()
	if got := must(t, append([]string{"wait", "--in-sync"}, both...)...); got != at+"\n" {
		t.Errorf("%q", got)
	}
}
