package main

import (
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/loopback"
)

// startPair starts a pair of servers and waits until the backup follows the primary. It
// returns both, the primary first.
func startPair(t *testing.T, args ...string) [2]*server {
	t.Helper()
	host := loopback.Own()
	var pair [2]*server
	for i, role := range []string{"--primary", "--backup"} {
		p := start(t, append([]string{"serve", role, "--host", host, "--bstar-interval", "1s"}, args...)...)
		pair[i] = &server{process: p, endpoint: p.ready()}
	}
	must(t, "set", "/begun", "1", "--timeout", "1m", "--server", pair[0].endpoint, "--server", pair[1].endpoint)
	pair[0].awaitSync(pair[1])
	return pair
}

// awaitSync waits until other follows s and has all of its updates.
func (s *server) awaitSync(other *server) {
	s.t.Helper()
	for s.t.Context().Err() == nil {
		for line := range strings.Lines(must(s.t, "status", "--json", "--server", s.endpoint, "--server", other.endpoint)) {
			if object(s.t, line)["in_sync"] == true {
				return
			}
		}
	}
}

// A pair that starts, hands over and stops logs no warning.
func TestPairLogsNoWarnings(t *testing.T) {
	t.Parallel()
	pair := startPair(t, "--log-level", "info")
	must(t, "failover", "--server", pair[0].endpoint, "--server", pair[1].endpoint)
	pair[1].awaitSync(pair[0])
	for _, i := range []int{0, 1} { // the passive one first
		pair[i].terminate()
		text := pair[i].stderr.String()
		if strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") || !strings.Contains(text, `level=INFO msg="state changed"`) {
			t.Errorf("server %d: %s", i, text)
		}
	}
}

// If only a standby answers, the command says so, and which one.
func TestOnlyAStandbyAnswers(t *testing.T) {
	t.Parallel()
	pair := startPair(t)
	standby := pair[1].endpoint
	o := try(t, "get", "/begun", "--server", "tcp://127.0.0.1:1", "--server", standby, "--timeout", "3s")
	o.expect(t, exitNoServer, "no active server answered within 3s at tcp://127.0.0.1:1 (connection refused")
	o.expect(t, exitNoServer, "; "+standby+" answered that it is a standby\n")
	try(t, "get", "/begun", "--server", standby, "--timeout", "3s").
		expect(t, exitNoServer, "the server "+standby+" was not active within 3s: it is not the active server of its pair; add --server")
}

// A replay too short for a rate has none.
func TestReplayWithoutRate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, "--data", dir)
	must(t, "set", "k", "v", "--server", s.endpoint)
	s.terminate()
	s = serve(t, "--data", dir)
	if text := s.stderr.String(); !strings.Contains(text, "chp: replayed 1 update from "+dir+" in ") || strings.Contains(text, "a second") && !strings.Contains(text, "s (") {
		t.Error(text)
	}
}

// terminate stops a process with SIGTERM and waits for its end.
func (p *process) terminate() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitDone {
		p.t.Errorf("%s: exit code %d: %s", p.name(), code, p.stderr.String())
	}
}
