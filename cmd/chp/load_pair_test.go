package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"clustermap/internal/loopback"
)

// A load goes on when the active server of a pair is killed: all lines are in the map in
// the end.
func TestLoadFailsOver(t *testing.T) {
	t.Parallel()
	host := loopback.Own()
	both := []string{"--server", "tcp://" + host + ":5556", "--server", "tcp://" + host + ":5566"}
	var servers [2]*process
	for i, role := range []string{"--primary", "--backup"} {
		servers[i] = start(t, "serve", role, "--host", host, "--bstar-interval", "1s", "--heartbeat", "100ms")
		servers[i].ready()
	}
	must(t, append([]string{"set", "/begun", "1", "--timeout", "1m"}, both...)...)
	for inSync := false; !inSync && t.Context().Err() == nil; {
		inSync = object(t, strings.TrimSpace(must(t, "status", "--json", both[0], both[1])))["in_sync"] == true
	}
	load := start(t, append([]string{"load"}, both...)...)
	lines := 0
	write := func(n int) {
		t.Helper()
		for range n {
			if _, err := fmt.Fprintf(load.stdin, `{"key":"/%d","value":"%d"}`+"\n", lines, lines); err != nil {
				t.Fatal(err)
			}
			lines++
		}
	}
	write(1000)
	for !strings.Contains(must(t, append([]string{"dump"}, both...)...), `"/999"`) && t.Context().Err() == nil {
	}
	write(1000)
	servers[0].signal(os.Kill)
	servers[0].wait()
	write(1000)
	load.stdin.Close()
	if code := load.wait(); code != exitDone {
		t.Fatalf("load: exit code %d: %s", code, load.stderr.String())
	}
	if n := strings.Count(must(t, "dump", "--server", both[3]), "\n"); n != lines+1 {
		t.Errorf("%d keys, want %d", n, lines+1)
	}
}
