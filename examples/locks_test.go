package examples

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// serveMap runs a server until the end of the test, and returns its endpoint.
func serveMap(t *testing.T) string {
	command, err := commandtest.Build("../cmd/chp", t.TempDir())
	testenv.Must(t, err)
	host := loopback.Own()
	run(t, command.Command(t, "serve", "--host", host))
	return "tcp://" + host + ":5556"
}

// One process runs the job; when it is killed, the other one does, and no interval has two runs.
func TestCron(t *testing.T) {
	t.Parallel()
	endpoint := serveMap(t)
	cron := func() *process {
		return start(t, "cron", "-server", endpoint, "-every", "200ms", "-ttl", "4s")
	}
	first := cron()
	first.until("run ")
	second := cron()
	first.until("run ")
	testenv.Must(t, first.cmd.Process.Kill())
	second.until("run ")
	testenv.Must(t, second.cmd.Process.Signal(os.Interrupt))
	ran := map[string]bool{}
	for _, p := range []*process{first, second} {
		for line := range p.lines {
			p.seen = append(p.seen, line)
		}
		for _, line := range p.seen {
			if key, found := strings.CutPrefix(line, "run "); found && ran[key] {
				t.Errorf("%s was run twice", key)
			} else if found {
				ran[key] = true
			}
		}
	}
}

// Each shard is one worker's at a time; the shards of one that is killed are the other's.
func TestShards(t *testing.T) {
	t.Parallel()
	endpoint := serveMap(t)
	worker := func() *process { return start(t, "shards", "-server", endpoint, "-shards", "4", "-ttl", "4s") }
	first := worker()
	for range 4 {
		first.until("begin ")
	}
	second := worker()
	for range 2 {
		first.until("end ")
		second.until("begin ")
	}
	testenv.Must(t, first.cmd.Process.Kill())
	for range 2 {
		second.until("begin ")
	}
	begun := map[string]bool{}
	for _, line := range second.seen {
		var shard string
		var token int64
		if n, _ := fmt.Sscanf(line, "begin %s %d", &shard, &token); n == 2 {
			begun[shard] = true
		}
	}
	if len(begun) != 4 {
		t.Errorf("it has the shards %v", begun)
	}
}

// What the map and its recipes do by themselves is not in these examples, so they are short.
func TestExamplesAreShort(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"audit", "cron", "editors", "registry", "shards"} {
		b, err := os.ReadFile(filepath.Join(name, "main.go"))
		testenv.Must(t, err)
		if n := strings.Count(string(b), "\n"); n > 60 {
			t.Errorf("%s has %d lines", name, n)
		}
	}
}
