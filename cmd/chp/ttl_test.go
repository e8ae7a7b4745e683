package main

import (
	"strings"
	"testing"
)

// A dump has the remaining times to live of keys, and a load sets them: no key becomes
// permanent on the way.
func TestDumpAndLoadKeepTimesToLive(t *testing.T) {
	t.Parallel()
	a, b := serve(t), serve(t)
	must(t, "set", "/session", "1", "--ttl", "1h", "--server", a.endpoint)
	must(t, "set", "/stays", "1", "--server", a.endpoint)
	dump := must(t, "dump", "--server", a.endpoint)
	lines := strings.Split(dump, "\n")
	left, ok := object(t, lines[0])["ttl"].(float64)
	if !ok || left <= 3600-120 || left > 3600 || object(t, lines[1])["ttl"] != nil {
		t.Fatalf("dump:\n%s", dump)
	}
	mustInput(t, dump+`{"key":"/soon","value":"1","ttl":0.05}
{"key":"/tiny","value":"1","ttl":1e-12}
`, "load", "--server", b.endpoint)
	again := object(t, strings.Split(must(t, "dump", "/session", "--server", b.endpoint), "\n")[0])
	if got, ok := again["ttl"].(float64); !ok || got > left || got < left-120 {
		t.Errorf("%v s left before, %v after the load", left, again["ttl"])
	}
	w := start(t, "watch", "--json", "/soon", "/tiny", "/end", "--server", b.endpoint)
	for object(t, w.line())["op"] != "synced" {
	}
	must(t, "set", "/end", "1", "--ttl", "50ms", "--server", b.endpoint)
	for {
		if e := object(t, w.line()); e["op"] == "del" && e["key"] == "/end" {
			break
		}
	}
	for _, key := range []string{"/soon", "/tiny"} {
		try(t, "get", key, "--server", b.endpoint).expect(t, exitRefused, "not in the map")
	}
}

// A line whose time to live is over is skipped, and one with a time to live that no
// server accepts is refused.
func TestLoadOfTimesThatAreOver(t *testing.T) {
	t.Parallel()
	s := serve(t)
	o := tryInput(t, `{"key":"a","value":"1","ttl":0}
{"key":"b","value":"1","ttl":-3.5}
{"key":"c","value":"1","ttl":null}
`, "load", "--server", s.endpoint)
	o.expect(t, exitDone, "loaded 1 key")
	o.expect(t, exitDone, "skipped 2")
	if got := must(t, "dump", "--server", s.endpoint); got != `{"key":"c","value":"1"}`+"\n" {
		t.Errorf("the map holds %s", got)
	}
	tryInput(t, `{"key":"a","value":"1","ttl":1e12}`, "load", "--server", s.endpoint).expect(t, exitRefused, "line 1: a ttl of 1e+12 seconds is over ten years")
	tryInput(t, `{"key":"a","value":"1","ttl":"3"}`, "load", "--server", s.endpoint).expect(t, exitRefused, "line 1: ttl must be a number")
}

// watch --json tells why a key changed and how long it lives.
func TestWatchPrintsCauseAndTTL(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := start(t, "watch", "--json", "--server", s.endpoint)
	if e := object(t, w.line()); e["op"] != "synced" || e["cause"] != nil {
		t.Errorf("first comes %v", e)
	}
	want := func(op, cause string, limit bool) {
		t.Helper()
		e := object(t, w.line())
		if _, ok := e["ttl"]; e["op"] != op || e["cause"] != cause || ok != limit {
			t.Errorf("%v; want %s because of %s, with a limit: %v", e, op, cause, limit)
		}
	}
	must(t, "set", "k", "v", "--server", s.endpoint)
	want("set", "set", false)
	must(t, "del", "k", "--server", s.endpoint)
	want("del", "deleted", false)
	must(t, "set", "k", "v", "--ttl", "50ms", "--server", s.endpoint)
	want("set", "set", true)
	want("del", "expired", false)
}

// The name of a subtree without its slash is a key; the text says so at once.
func TestDumpWithoutTheSlash(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, "set", "/config/a", "1", "--server", s.endpoint)
	try(t, "dump", "/config", "--server", s.endpoint).expect(t, exitRefused, "no key /config in the map of "+s.endpoint+"; for the subtree use /config/")
	try(t, "dump", "config", "--server", s.endpoint).expect(t, exitRefused, "no key config in the map of "+s.endpoint+"; for the subtree use /config/")
	try(t, "dump", "my config", "--server", s.endpoint).expect(t, exitRefused, "no key 'my config' in the map of "+s.endpoint+"; for the subtree use '/my config/'")
	if got := must(t, "dump", "/none/", "--server", s.endpoint); got != "" {
		t.Errorf("an empty subtree is dumped as %q", got)
	}
}
