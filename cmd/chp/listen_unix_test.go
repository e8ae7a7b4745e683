//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/testenv"
)

// serveAt starts a server at endpoints, of which ipc is one, and waits until it is ready.
func serveAt(t *testing.T, ipc string, args ...string) *process {
	t.Helper()
	p := start(t, append([]string{"serve"}, args...)...)
	ready := "ready: snapshots " + ipc + ", publisher " + ipc + "+1, collector " + ipc + "+2\n"
	testenv.Eventually(t, "a server at "+ipc, func() bool { return strings.Contains(p.stderr.String(), ready) })
	return p
}

// A server listens on Unix sockets and on ports, and all commands use it by either, also by
// a context.
func TestServeEndpoints(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	ipc := "ipc://" + filepath.Join(dir, "map")
	s := serveAt(t, ipc, "--endpoint", "tcp://127.0.0.1:0", "--endpoint", ipc)
	tcp := s.ready()
	if n := strings.Count(s.stderr.String(), "ready"); n != 2 {
		t.Errorf("%d ready lines: %s", n, s.stderr.String())
	}
	w := start(t, "watch", "--server", ipc)
	w.line() // synced
	must(t, "set", "/k", "by ipc", "--server", ipc)
	if out := must(t, "get", "/k", "--server", tcp); out != "by ipc\n" {
		t.Errorf("%q", out)
	}
	if line := w.line(); !strings.HasSuffix(line, " /k by ipc") {
		t.Errorf("%q", line)
	}
	out := must(t, "status", "--server", ipc, "--server", tcp)
	if got := cells(out, "state"); len(got) != 2 || got[0] != "active" || got[1] != "active" {
		t.Errorf("%s", out)
	}
	mustInput(t, must(t, "dump", "--server", ipc), "load", "--server", ipc)

	h := newHome(t)
	h.must("", "context set local --server "+ipc+" --server "+tcp)
	if out := h.must("", "get /k"); out != "by ipc\n" {
		t.Errorf("%q", out)
	}
	if out := h.must("", "context list"); out != "* local  "+ipc+" "+tcp+"\n" {
		t.Errorf("%q", out)
	}
	if out := h.must(serverVariable+"="+ipc, "ls"); out != "/k\n" {
		t.Errorf("%q", out)
	}
}

// The sockets of a server that was killed do not keep the next one from listening; a
// watch follows that. A directory or a server that is missing is named.
func TestServeEndpointAgain(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	path := filepath.Join(dir, "map")
	ipc := "ipc://" + path
	o := try(t, "get", "/k", "--timeout", "200ms", "--server", ipc)
	o.expect(t, exitNoServer, "no CHP server answered at "+ipc+" within 200ms: no such file or directory")
	try(t, "serve", "--endpoint", "ipc://"+dir+"/no/map").expect(t, exitRefused, "the directory of ipc://"+dir+"/no/map does not exist")

	file := filepath.Join(dir, "file")
	testenv.Must(t, os.WriteFile(file+"+1", []byte("mine"), 0o600))
	try(t, "serve", "--endpoint", "ipc://"+file).expect(t, exitRefused, file+"+1 exists and is not a socket; remove it, or choose another --endpoint")
	if kept, err := os.ReadFile(file + "+1"); string(kept) != "mine" {
		t.Errorf("the file has %q, %v", kept, err)
	}

	s := serveAt(t, ipc, "--endpoint", ipc)
	try(t, "serve", "--endpoint", ipc).expect(t, exitRefused, ipc+" is in use; stop the program that uses it, or choose another --endpoint")
	w := start(t, "watch", "--server", ipc)
	w.line() // synced
	s.signal(os.Kill)
	s.wait()
	try(t, "get", "/k", "--timeout", "200ms", "--server", ipc).expect(t, exitNoServer, "connection refused")
	serveAt(t, ipc, "--endpoint", ipc)
	must(t, "set", "/k", "again", "--server", ipc)
	if line := w.line(); !strings.HasSuffix(line, " /k again") {
		t.Errorf("%q", line)
	}

	// A server that lacks one of its sockets.
	testenv.Must(t, os.Remove(path+"+1"))
	o = try(t, "get", "/k", "--timeout", "200ms", "--server", ipc)
	o.expect(t, exitNoServer, "no such file or directory at "+ipc+"+1, and a server needs three ports")
}

// Two servers are a pair by Unix sockets alone.
func TestPairOverIPC(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	at := func(name string) string { return "ipc://" + filepath.Join(dir, name) }
	common := []string{"--bstar-interval", "100ms", "--heartbeat", "100ms"}
	primary := serveAt(t, at("p"), append(common, "--primary", "--endpoint", at("p"), "--peer", at("b"), "--state", at("ps"), "--peer-state", at("bs"))...)
	serveAt(t, at("b"), append(common, "--backup", "--endpoint", at("b"), "--peer", at("p"), "--state", at("bs"), "--peer-state", at("ps"))...)
	both := []string{"--timeout", testenv.Hang.String(), "--server", at("p"), "--server", at("b")}
	must(t, append([]string{"set", "/k", "1"}, both...)...)
	testenv.Eventually(t, "the pair in sync", func() bool {
		return object(t, strings.TrimSpace(must(t, "status", "--json", "--server", at("p"))))["in_sync"] == true
	})
	primary.signal(os.Kill)
	primary.wait()
	must(t, append([]string{"set", "/k", "2"}, both...)...)
	if out := must(t, append([]string{"get", "/k"}, both...)...); out != "2\n" {
		t.Errorf("%q", out)
	}
}
