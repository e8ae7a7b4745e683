package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A server that begins with a dump is ready when its keys are in the map, and a
// watch that goes on sees no deletion of a key in the dump.
func TestServeLoad(t *testing.T) {
	t.Parallel()
	s := serveApart(t)
	must(t, "set", "/a", "1", "--server", s.endpoint)
	must(t, "set", "/b", "2", "--ttl", "1h", "--server", s.endpoint)
	dump := must(t, "dump", "--server", s.endpoint)
	file := filepath.Join(t.TempDir(), "map.jsonl")
	if err := os.WriteFile(file, []byte(dump), 0o666); err != nil {
		t.Fatal(err)
	}
	w := start(t, "watch", "--json", "--server", s.endpoint)
	for object(t, w.line())["op"] != "synced" {
	}
	s.signal(os.Interrupt)
	s.wait()
	again := start(t, "serve", "--host", s.host(), "--port", s.port(), "--load", file)
	again.ready()
	if got := must(t, "get", "/a", "--server", s.endpoint); got != "1\n" {
		t.Errorf("got %q", got)
	}
	for want := []string{"/a", "/b"}; len(want) > 0; { // which were set again
		e := object(t, w.line())
		key, _ := e["key"].(string)
		if e["op"] != "set" || e["cause"] != "resync" || !slices.Contains(want, key) {
			t.Fatalf("after the restart the watch prints %v, want %v", e, want)
		}
		want = slices.DeleteFunc(want, func(k string) bool { return k == key })
	}
	must(t, "set", "/end", "1", "--server", s.endpoint)
	if e := object(t, w.line()); e["op"] != "set" || e["key"] != "/end" {
		t.Errorf("after that the watch prints %v", e)
	}
	if e := object(t, must(t, "dump", "/b", "--server", s.endpoint)); e["ttl"] == nil {
		t.Errorf("/b has become permanent: %v", e)
	}
}

// A dump that cannot be used ends the server before it is ready, with the line.
func TestServeLoadRefusesBadLines(t *testing.T) {
	t.Parallel()
	const good = `{"key":"good","value":"1"}` + "\n\n"
	for _, c := range []struct{ line, want string }{
		{"hello", "standard input, line 3: not a line of a dump"},
		{`{"key":"HUGZ","value":"v"}`, "standard input, line 3: message refused: reserved key"},
		{`{"key":"k","value":"too large"}`, "standard input, line 3: message refused: value too large"},
	} {
		tryInput(t, good+c.line, "serve", "--port", "0", "--max-value-size", "5", "--load", "-").expect(t, exitRefused, c.want)
	}
	try(t, "serve", "--port", "0", "--load", filepath.Join(t.TempDir(), "none")).expect(t, exitRefused, "none")
}

// A signal ends a server that is still loading.
func TestServeLoadIsInterrupted(t *testing.T) {
	t.Parallel()
	p := start(t, "serve", "--port", "0", "--load", "-")
	// More than a pipe holds: when it is written, the command reads, and so it has
	// its handler of signals.
	if _, err := io.WriteString(p.stdin, strings.Repeat(`{"key":"k","value":"v"}`+"\n", 10_000)); err != nil {
		t.Fatal(err)
	}
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitDone {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
}

// watch --keep-on-empty prints no deletions when a server starts anew without its
// map, but for keys with a time to live; without the flag they come, as a resync.
func TestWatchKeepOnEmpty(t *testing.T) {
	t.Parallel()
	s := serveApart(t)
	must(t, "set", "/a", "1", "--server", s.endpoint)
	must(t, "set", "/lease", "1", "--ttl", "1h", "--server", s.endpoint)
	keeps := start(t, "watch", "--json", "--keep-on-empty", "--server", s.endpoint)
	follows := start(t, "watch", "--json", "--server", s.endpoint)
	for _, w := range []*process{keeps, follows} {
		for object(t, w.line())["op"] != "synced" {
		}
	}
	s.signal(os.Interrupt)
	s.wait()
	start(t, "serve", "--host", s.host(), "--port", s.port()).ready()
	gone := func(w *process, keys ...string) {
		t.Helper()
		for range keys {
			e := object(t, w.line())
			if key, _ := e["key"].(string); e["op"] != "del" || e["cause"] != "resync" || !slices.Contains(keys, key) {
				t.Errorf("%s prints %v, want deletions of %v by a resync", w.name(), e, keys)
			}
		}
	}
	gone(follows, "/a", "/lease")
	gone(keeps, "/lease")
	must(t, "set", "/end", "1", "--server", s.endpoint)
	if e := object(t, keeps.line()); e["op"] != "set" || e["key"] != "/end" {
		t.Errorf("the watch with --keep-on-empty prints %v", e)
	}
}

// A dump with lines longer than the default, or than a bound that is given, is the
// business of --max-line, as with load.
func TestPreloadMaxLine(t *testing.T) {
	t.Parallel()
	line := `{"key":"k","value":"` + strings.Repeat("v", 200) + `"}`
	tryInput(t, line, "serve", "--port", "0", "--max-line", "100", "--load", "-").expect(t, exitRefused, "longer than 100 bytes; use --max-line to allow more")
}
