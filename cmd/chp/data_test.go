package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/testenv"
)

// TestServeData kills a server that keeps its map, and starts the next one on it, with
// each of the policies.
func TestServeData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "map")
	before := ""
	for i, policy := range []string{"always", "interval=10ms", "never", "always"} {
		s := serveApart(t, "--data", dir, "--sync", policy)
		if said := strings.Contains(s.stderr.String(), "chp: the log in "+dir+" is new, and the map empty\n"); said != (i == 0) {
			t.Errorf("start %d says that the log is new: %v", i, said)
		}
		if i > 0 {
			if got := strings.TrimSpace(must(t, "get", "/a", "--server", s.endpoint)); got != before {
				t.Errorf("with %s: %q, want %q", policy, got, before)
			}
			if !strings.Contains(s.stderr.String(), "chp: replayed ") {
				t.Errorf("no word of the replay: %s", s.stderr.String())
			}
		}
		before = strconv.Itoa(i)
		must(t, "set", "/a", before, "--server", s.endpoint)
		try(t, "serve", "--port", "0", "--data", dir).expect(t, exitRefused, "another server has it open")
		if policy == "always" {
			s.signal(syscall.SIGKILL) // the others may lose unwritten entries
		} else {
			s.signal(syscall.SIGTERM)
		}
		s.wait()
	}
}

// TestCleanStopCoversAll: a server that is killed, started again and stopped without an update
// in between says in its log that all entries are on disk, so that a damaged one is noticed.
func TestCleanStopCoversAll(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "map")
	s := serveApart(t, "--data", dir, "--sync", "always")
	must(t, "set", "/a", "1", "--server", s.endpoint)
	must(t, "set", "/b", "2", "--server", s.endpoint)
	s.signal(syscall.SIGKILL)
	s.wait()
	s = serveApart(t, "--data", dir)
	s.signal(syscall.SIGTERM)
	s.wait()
	var report struct {
		Last      uint64 `json:"last_entry"`
		Committed uint64 `json:"committed_entry"`
	}
	testenv.Must(t, json.Unmarshal([]byte(must(t, "fsck", dir, "--json")), &report))
	if report.Last < 3 || report.Committed != report.Last {
		t.Errorf("%+v", report)
	}
}

// TestServeDataErrors: errors of --data and of the flags beside it name the fault.
func TestServeDataErrors(t *testing.T) {
	t.Parallel()
	try(t, "serve", "--data", t.TempDir(), "--sync", "sometimes").expect(t, exitUsage, "always")
	try(t, "serve", "--port", "0", "--sync", "always").expect(t, exitUsage, "--sync needs --data")
	try(t, "serve", "--data", t.TempDir(), "--max-value-size", "512MiB").expect(t, exitUsage, "MaxValueSize")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	try(t, "serve", "--data", file).expect(t, exitRefused, "--data "+file+": it is a file")
}
