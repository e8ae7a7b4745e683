package main

import (
	"strings"
	"testing"

	"clustermap/internal/loopback"
)

// A line for each server, and an exit code that says whether one is active.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/k", "v", "--server", s.endpoint)
	line := object(t, must(t, "status", "--json", "--server", s.endpoint))
	for field, want := range map[string]any{"endpoint": s.endpoint, "role": "alone", "state": "active", "keys": 1.0, "epoch": 0.0, "peer": "", "lag": 0.0} {
		if line[field] != want {
			t.Errorf("%s is %v, want %v", field, line[field], want)
		}
	}
	if line["memory_bytes"].(float64) < 1<<20 || line["sequence"].(float64) < 1<<32 {
		t.Errorf("%v", line)
	}

	nobody := "tcp://" + loopback.Own() + ":1"
	o := try(t, "status", "--server", nobody, "--server", s.endpoint)
	o.expect(t, exitDone, "chp: no answer from "+nobody+": connection refused")
	lines := strings.Split(strings.TrimSuffix(o.out, "\n"), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "SERVER ") || !strings.Contains(lines[1], "no answer") ||
		!strings.HasPrefix(lines[2], s.endpoint+"  alone  active ") {
		t.Errorf("%s", o.out)
	}
	o = try(t, "status", "--json", "--server", nobody, "--server", s.endpoint)
	lines = strings.Split(strings.TrimSuffix(o.out, "\n"), "\n")
	if len(lines) != 2 || object(t, lines[0])["error"] != "connection refused" || object(t, lines[1])["state"] != "active" {
		t.Errorf("%s", o.out)
	}
	try(t, "status", "--server", nobody).expect(t, exitNoServer, "no server answered: "+nobody+" (connection refused)")
}

// With CURVE the keys are needed as everywhere.
func TestStatusCurve(t *testing.T) {
	t.Parallel()
	serverFile, serverKey := keygen(t, "server")
	clientFile, clientKey := keygen(t, "client")
	s := serve(t, "--curve-key", serverFile, "--curve-allow", clientKey)
	must(t, "status", "--server", s.endpoint, "--curve-key", clientFile, "--curve-server-key", serverKey)
	try(t, "status", "--server", s.endpoint).expect(t, exitNoServer, "--curve-key")
}

// A server that is not one of a pair does not hand over.
func TestFailoverAlone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	o := try(t, "failover", "--server", s.endpoint)
	o.expect(t, exitRefused, s.endpoint+" is active, and does not hand over: not one of a pair")
	if o.out != "" {
		t.Errorf("stdout %q", o.out)
	}
	try(t, "failover", "--server", "tcp://127.0.0.1:1").expect(t, exitNoServer, "no server answered")
}
