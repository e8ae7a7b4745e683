package main

import (
	"slices"
	"strings"
	"testing"

	"clustermap/internal/loopback"
)

// A backup whose primary is gone waits for it. What needs the map fails, with the advice
// to promote it; when that is done the map is there.
func TestPromoteLonelyBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alone := serve(t, "--data", dir)
	must(t, "set", "/k", "v", "--server", alone.endpoint)
	alone.terminate()
	host := loopback.Own()
	p := start(t, "serve", "--backup", "--host", host, "--data", dir, "--bstar-interval", "100ms", "--log-level", "warn")
	backup := &server{process: p, endpoint: p.ready()}
	primary := "tcp://" + host + ":5556"
	both := []string{"--server", primary, "--server", backup.endpoint}
	advice := backup.endpoint + " waits for its primary: if that is gone for good, run chp promote --server " + backup.endpoint

	o := try(t, append([]string{"get", "/k", "--timeout", "3s"}, both...)...)
	o.expect(t, exitNoServer, "; "+backup.endpoint+" answered that it is a standby")
	o.expect(t, exitNoServer, advice)
	try(t, "get", "/k", "--timeout", "1s", "--server", backup.endpoint).expect(t, exitNoServer, advice)
	try(t, append([]string{"set", "/k", "w", "--timeout", "1s"}, both...)...).expect(t, exitNoServer, advice)
	try(t, append([]string{"del", "/k", "--timeout", "1s"}, both...)...).expect(t, exitNoServer, advice)
	try(t, append([]string{"status"}, both...)...).expect(t, exitRefused, "no server is active; "+advice)
	p.Await("waits for the primary")

	try(t, append([]string{"promote"}, both...)...).expect(t, exitUsage, "add --yes to promote "+backup.endpoint)
	o = try(t, append([]string{"promote", "--yes"}, both...)...)
	o.expect(t, exitDone, "chp: "+backup.endpoint+": role backup, state waiting, 1 key, sequence ")
	if o.out != backup.endpoint+" is active\n" {
		t.Errorf("%q", o.out)
	}
	if got := must(t, append([]string{"get", "/k"}, both...)...); got != "v\n" {
		t.Errorf("%q", got)
	}
	try(t, append([]string{"promote", "--yes"}, both...)...).expect(t, exitRefused, backup.endpoint+" is active already")
	if text := p.stderr.String(); !strings.Contains(text, "was promoted at the request of a client") || !strings.Contains(text, "by.remote=") {
		t.Error(text)
	}
}

// Of several servers that answer, and of which none is active, one must be named; the
// reason for which a server refuses is printed; and nobody answering is an exit code of
// its own.
func TestPromoteRefused(t *testing.T) {
	t.Parallel()
	pair := newPair(t)
	first, second := pair[0].endpoint, pair[1].endpoint
	try(t, "promote", "--yes", "--server", first, "--server", second).expect(t, exitRefused, first+" is active already")
	pair[0].active.Store(nil)
	try(t, "promote", "--yes", "--server", first, "--server", second).expect(t, exitRefused, first+" and "+second+" answer; name the one to promote")
	if got := must(t, "promote", "--yes", "--server", second); got != second+" is active\n" {
		t.Errorf("%q", got)
	}
	if got := cells(must(t, "status", "--server", first, "--server", second), "state"); !slices.Equal(got, []string{"passive", "active"}) {
		t.Errorf("%q", got)
	}
	pair[0].active.Store(nil)
	pair[0].refuses.Store(true)
	try(t, "promote", "--yes", "--server", first).expect(t, exitRefused, first+" is not promoted: the other server has not caught up")
	try(t, "promote", "--yes", "--server", "tcp://127.0.0.1:1").expect(t, exitNoServer, "no server answered")
	s := serve(t)
	try(t, "promote", "--yes", "--server", s.endpoint).expect(t, exitRefused, s.endpoint+" is active already")
}
