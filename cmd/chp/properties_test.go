package main

import (
	"strings"
	"testing"
)

// Properties that a client sets are in all that shows a key: get, ls, watch and dump; and load
// brings them to another server.
func TestPropertiesEverywhere(t *testing.T) {
	t.Parallel()
	s, other := serve(t), serve(t)
	at := func(where string, args ...string) []string { return append(args, "--server", where) }
	must(t, at(s.endpoint, "set", "/flag", "on", "--property", "by=alice", "--property", "ticket=a = b", "--ttl", "1h")...)
	must(t, at(s.endpoint, "set", "/plain", "x")...)
	dump := must(t, at(s.endpoint, "dump")...)
	mustInput(t, dump, at(other.endpoint, "load")...)
	for _, where := range []string{s.endpoint, other.endpoint} {
		want := map[string]any{"by": "alice", "ticket": "a = b"}
		for _, args := range []string{"get --json /flag", "get --json --prefix /flag", "ls --json /flag", "dump /flag"} {
			out := object(t, must(t, at(where, strings.Fields(args)...)...))
			got, _ := out["properties"].(map[string]any)
			if len(got) != 2 || got["by"] != want["by"] || got["ticket"] != want["ticket"] || out["time"] != nil || out["by"] != nil {
				t.Errorf("%s prints %v", args, out)
			}
		}
		lines := strings.Split(must(t, at(where, "ls", "-l")...), "\n")
		if !strings.HasSuffix(lines[1], `  /flag  by=alice  "ticket=a = b"`) || !strings.HasSuffix(lines[2], "  /plain") {
			t.Errorf("ls -l prints %q", lines)
		}
		w := start(t, at(where, "watch", "/flag", "--json")...)
		e := object(t, w.line())
		if got, _ := e["properties"].(map[string]any); len(got) != 2 || got["by"] != "alice" || e["ttl"] == nil {
			t.Errorf("watch prints %v", e)
		}
		w.line() // synced
		must(t, at(where, "set", "/flag", "off", "--property", "by=bob")...)
		e = object(t, w.line())
		if got, _ := e["properties"].(map[string]any); len(got) != 1 || got["by"] != "bob" {
			t.Errorf("watch prints %v", e)
		}
	}
}

// A property of the command line that is not a property, or is the protocol's, is a usage error.
func TestPropertyMistakes(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "a", "=b", "a=b\nc=d", "ttl=3", "x-time=1", "x-by=bob"} {
		try(t, "set", "/k", "v", "--property", p, "--server", "tcp://127.0.0.1:1").expect(t, exitUsage, "--property ")
	}
}
