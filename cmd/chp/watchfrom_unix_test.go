//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWatchSinceAcrossAKill: chp watch --since goes on where another one was, deletions included,
// also at a server that was killed and started again on its data; what is not known any more has
// exit code 1.
func TestWatchSinceAcrossAKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "map")
	s := serveApart(t, "--data", dir, "--sync", "always")
	must(t, "set", "/a", "1", "--server", s.endpoint)
	w := start(t, "watch", "--no-initial", "--server", s.endpoint)
	synced := w.line()
	since, ok := strings.CutPrefix(synced, "synced ")
	if !ok {
		t.Fatalf("--no-initial begins with %q", synced)
	}
	must(t, "set", "/a", "2", "--server", s.endpoint)
	must(t, "set", "/b", "3", "--server", s.endpoint)
	must(t, "del", "/a", "--server", s.endpoint)
	want := []string{w.line(), w.line(), w.line()}
	s.signal(syscall.SIGKILL)
	s.wait()
	s = serveApart(t, "--data", dir, "--sync", "always")
	w = start(t, "watch", "--since", strings.TrimSpace(since), "--server", s.endpoint)
	for _, line := range want {
		if got := w.line(); got != line {
			t.Errorf("%q, want %q", got, line)
		}
	}
	if got := w.line(); !strings.HasPrefix(got, "synced ") {
		t.Errorf("%q, want synced", got)
	}
	prev := start(t, "watch", "--prev", "--json", "--no-initial", "--server", s.endpoint)
	prev.line()
	must(t, "set", "/b", "4", "--server", s.endpoint)
	if got := w.line(); !strings.HasPrefix(got, "set ") || !strings.HasSuffix(strings.TrimSpace(got), " /b 4") {
		t.Errorf("then %q", got)
	}
	if got := prev.line(); !strings.Contains(got, `"value":"4"`) || !strings.Contains(got, `"prev":"3"`) {
		t.Errorf("with --prev %q", got)
	}
	try(t, "watch", "--since", "12", "--server", s.endpoint).expect(t, exitRefused, "the oldest one after which it knows everything")
	try(t, "watch", "--since", "x", "--server", s.endpoint).expect(t, exitUsage, "--since")
	s.signal(syscall.SIGTERM)
	s.wait()
	s = serveApart(t, "--data", dir, "--retain", "0")
	try(t, "watch", "--since", strings.TrimSpace(since), "--server", s.endpoint).expect(t, exitRefused, "does not know what came after")
}
