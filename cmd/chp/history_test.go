package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"
)

// versions returns what chp history prints of a key, as objects.
func versions(t *testing.T, key string, at ...string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(must(t, append([]string{"history", key, "--json"}, at...)...)) {
		all = append(all, object(t, line))
	}
	return all
}

// history shows who set what and when, get --seq what was between, and revert brings it back. The
// names are those behind the keys in the file of --curve-allow, and last through kill -9.
func TestHistoryCommands(t *testing.T) {
	t.Parallel()
	serverFile, serverKey := keygen(t, "server")
	alice, aliceKey := keygen(t, "alice")
	bob, bobKey := keygen(t, "bob")
	list := filepath.Join(t.TempDir(), "list")
	testenv.Must(t, os.WriteFile(list, []byte(aliceKey+"  alice of ops\n"+bobKey+"\n"), 0o666))
	dir := filepath.Join(t.TempDir(), "map")
	start := func() *server {
		return serveApart(t, "--curve-key", serverFile, "--curve-allow", list, "--stamp", "--history", "4", "--data", dir, "--sync", "always")
	}
	s := start()
	as := func(file string) []string {
		return []string{"--server", s.endpoint, "--curve-key", file, "--curve-server-key", serverKey}
	}
	run := func(file string, args ...string) string {
		t.Helper()
		return strings.TrimSpace(must(t, append(args, as(file)...)...))
	}
	begun := time.Now().Add(-time.Minute)
	run(alice, "set", "/flag", "0")
	first := run(alice, "set", "/flag", "on", "--property", "ticket=7", "--ttl", "1h")
	second := run(bob, "set", "/flag", "off")
	third := run(bob, "del", "/flag")
	fourth := run(alice, "set", "/flag", "a b")

	check := func() {
		t.Helper()
		all := versions(t, "/flag", as(bob)...)
		want := []map[string]any{
			{"seq": first, "cause": "set", "by": "alice of ops", "value": "on", "ttl": 3600.0},
			{"seq": second, "cause": "set", "by": bobKey, "value": "off"},
			{"seq": third, "cause": "deleted", "by": bobKey},
			{"seq": fourth, "cause": "set", "by": "alice of ops", "value": "a b"},
		}
		if len(all) != len(want) {
			t.Fatalf("%d versions: %v", len(all), all)
		}
		for i, v := range all {
			at, err := time.Parse(time.RFC3339Nano, v["time"].(string))
			if err != nil || at.Before(begun) || at.After(time.Now().Add(time.Minute)) {
				t.Errorf("version %d is of %v, %v", i, v["time"], err)
			}
			if p, _ := v["properties"].(map[string]any); (len(p) == 1 && p["ticket"] == "7") != (i == 0) || v["key"] != "/flag" {
				t.Errorf("version %d: %v", i, v)
			}
			for name, value := range want[i] {
				if v[name] != value {
					t.Errorf("version %d has %s %v, want %v", i, name, v[name], value)
				}
			}
			if _, has := v["value"]; has != (i != 2) {
				t.Errorf("version %d: %v", i, v)
			}
		}
		lines := strings.Split(run(bob, "history", "/flag"), "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[0], first+" ") || !strings.HasSuffix(lines[0], `Z "alice of ops" set on`) ||
			!strings.HasSuffix(lines[2], "Z "+bobKey+" deleted") || !strings.HasSuffix(lines[3], " set a b") {
			t.Errorf("history prints %q", lines)
		}
		for seq, value := range map[string]string{first: "on", second: "off", fourth: "a b", "9223372036854775807": "a b"} {
			if got := run(bob, "get", "/flag", "--seq", seq); got != value {
				t.Errorf("at %s it was %q, want %q", seq, got, value)
			}
		}
		if v := object(t, run(bob, "get", "/flag", "--json", "--seq", first)); v["value"] != "on" || v["by"] != "alice of ops" {
			t.Errorf("get --seq --json prints %v", v)
		}
		try(t, append([]string{"get", "/flag", "--seq", third}, as(bob)...)...).expect(t, exitRefused, "was not in the map")
		try(t, append([]string{"get", "/flag", "--seq", "7"}, as(bob)...)...).expect(t, exitRefused, "the oldest version that "+s.endpoint+" keeps is of "+first)
		try(t, append([]string{"revert", "/flag", "--to", "7"}, as(bob)...)...).expect(t, exitRefused, "is not known")
		try(t, append([]string{"history", "/none"}, as(bob)...)...).expect(t, exitRefused, "has no version")
	}
	check()
	entry := object(t, run(bob, "get", "/flag", "--json"))
	if entry["by"] != "alice of ops" || entry["time"] == nil {
		t.Errorf("get --json prints %v", entry)
	}
	if line := strings.Split(run(bob, "ls", "-l"), "\n")[1]; !strings.HasSuffix(line, `"x-by=alice of ops"`) || !strings.Contains(line, "/flag  x-time=2") {
		t.Errorf("ls -l prints %q", line)
	}
	s.signal(syscall.SIGKILL)
	s.wait()
	s = start()
	check()

	reverted := run(bob, "revert", "/flag", "--to", first)
	entry = object(t, run(bob, "get", "/flag", "--json"))
	if p, _ := entry["properties"].(map[string]any); entry["value"] != "on" || entry["by"] != bobKey || entry["seq"] != reverted || p["ticket"] != "7" || entry["ttl"] == nil {
		t.Errorf("reverted to %v", entry)
	}
	if out := object(t, run(bob, "revert", "/flag", "--to", third, "--json")); out["key"] != "/flag" || out["seq"] == nil {
		t.Errorf("revert --json prints %v", out)
	}
	try(t, append([]string{"get", "/flag"}, as(bob)...)...).expect(t, exitRefused, "is not in the map")
	if all := versions(t, "/flag", as(bob)...); len(all) != 4 || all[2]["seq"] != reverted || all[3]["cause"] != "deleted" {
		t.Errorf("after the reverts: %v", all)
	}
	w := startCommand(t, program(t, append([]string{"watch", "/flag", "--json"}, as(bob)...)...))
	w.line() // synced
	run(alice, "set", "/flag", "v")
	if e := object(t, w.line()); e["by"] != "alice of ops" || e["time"] == nil || e["properties"] != nil {
		t.Errorf("watch prints %v", e)
	}
}

// A pair keeps the history when its active server is killed.
func TestHistoryOfKilledPair(t *testing.T) {
	t.Parallel()
	pair := startPair(t, "--history", "5", "--stamp")
	at := []string{"--server", pair[0].endpoint, "--server", pair[1].endpoint}
	for _, value := range []string{"1", "2", "3"} {
		must(t, append([]string{"set", "/k", value}, at...)...)
	}
	before := versions(t, "/k", at...)
	pair[0].signal(syscall.SIGKILL)
	pair[0].wait()
	must(t, append([]string{"set", "/k", "4", "--timeout", "30s"}, at...)...)
	after := versions(t, "/k", at...)
	if len(before) != 3 || len(after) != 4 || after[3]["value"] != "4" {
		t.Fatalf("before %v, after %v", before, after)
	}
	for i, v := range before {
		if after[i]["seq"] != v["seq"] || after[i]["value"] != v["value"] || after[i]["time"] != v["time"] {
			t.Errorf("version %d was %v, is %v", i, v, after[i])
		}
	}
	if value := strings.TrimSpace(must(t, append([]string{"get", "/k", "--seq", before[1]["seq"].(string)}, at...)...)); value != "2" {
		t.Errorf("it was %q", value)
	}
}

// A revert does not undo what came after the history was read.
func TestRevertConflicts(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := serve(t, "--history", "5")
	must(t, "set", "/k", "1", "--server", s.endpoint)
	must(t, "del", "/k", "--server", s.endpoint)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{s.endpoint}})
	testenv.Must(t, err)
	defer c.Close()
	for i, value := range []string{"2", "3"} {
		all, err := c.History(ctx, "/k")
		testenv.Must(t, err)
		now := all[len(all)-1]
		must(t, "set", "/k", value, "--server", s.endpoint)
		var conflict *chp.ConflictError
		if _, err := revert(ctx, c, "/k", now, all[i]); !errors.As(err, &conflict) {
			t.Errorf("revert to %v from %v: %v", all[i].Op, now.Op, err)
		}
		if got := must(t, "get", "/k", "--server", s.endpoint); got != value+"\n" {
			t.Errorf("it is %q", got)
		}
	}
}

// A server without a history says so at once, and what is not a sequence is a usage error.
func TestHistoryMistakes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/k", "v", "--server", s.endpoint)
	for _, args := range [][]string{{"history", "/k"}, {"get", "/k", "--seq", "5"}, {"revert", "/k", "--to", "5"}} {
		try(t, append(args, "--server", s.endpoint)...).expect(t, exitRefused, "keeps no history")
	}
	try(t, "revert", "/k").expect(t, exitUsage, "--to is missing")
	try(t, "revert", "/k", "--to", "-1").expect(t, exitUsage, "sequence")
	try(t, "get", "/k", "--seq", "yesterday").expect(t, exitUsage, "sequence")
	try(t, "serve", "--port", "0", "--history", "0").expect(t, exitUsage, "--history 0: must be positive")
	try(t, "serve", "--port", "0", "--history", "65").expect(t, exitUsage, "History: 65 is over 64")
	try(t, "serve", "--port", "0", "--history-bytes", "0").expect(t, exitUsage, "--history-bytes")
	try(t, "serve", "--port", "0", "--stamp", "--model", "3").expect(t, exitUsage, "Stamp")
}
