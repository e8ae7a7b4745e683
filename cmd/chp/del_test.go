package main

import (
	"fmt"
	"strings"
	"testing"
)

// del deletes several keys, and names those that are not in the map.
func TestDelKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	with := func(args ...string) []string { return append(args, "--server", s.endpoint) }
	for _, key := range []string{"/a/1", "/a/2", "plain", "/"} {
		must(t, with("set", key, "v")...)
	}
	if out := must(t, with("del", "--dry-run", "/", "/a/2", "/a/2")...); out != "/\n/a/2\n" {
		t.Errorf("del --dry-run prints %q", out)
	}
	if out := must(t, with("del", "/a/2", "/", "/a/2")...); strings.Count(out, "\n") != 2 {
		t.Errorf("del prints %q", out)
	}
	o := try(t, with("del", "--json", "/no", "plain", "/a/2")...)
	o.expect(t, exitRefused, `"/no", "/a/2" are not in the map of `+s.endpoint)
	if line := object(t, strings.TrimSuffix(o.out, "\n")); line["key"] != "plain" || len(line) != 2 {
		t.Errorf("del --json prints %q", o.out)
	}
	if out := must(t, with("ls")...); out != "/a/1\n" {
		t.Errorf("left: %q", out)
	}
	try(t, with("del", "--dry-run", "/no", "/a/1")...).expect(t, exitRefused, `"/no" is not in the map`)
}

// del takes more keys than a client can have subtrees.
func TestDelManyKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	lines := strings.Builder{}
	args := []string{"del", "--dry-run", "--server", s.endpoint}
	for i := range 2 * fewKeys {
		key := fmt.Sprintf("/m/%d", i)
		fmt.Fprintf(&lines, `{"key":"%s","value":"v"}`+"\n", key)
		args = append(args, key, key)
	}
	mustInput(t, lines.String(), "load", "--server", s.endpoint)
	if n := strings.Count(must(t, args...), "\n"); n != 2*fewKeys {
		t.Errorf("found %d keys", n)
	}
	try(t, append(args, "HUGZ")...).expect(t, exitUsage, "reserved")
}

// del --prefix deletes the keys that begin with the prefix, and prints their number.
func TestDelPrefix(t *testing.T) {
	t.Parallel()
	s := serve(t)
	with := func(args ...string) []string { return append(args, "--server", s.endpoint) }
	lines := strings.Builder{}
	for i := range deletePart + 10 {
		fmt.Fprintf(&lines, `{"key":"/many/%d","value":"v"}`+"\n", i)
	}
	for _, key := range []string{"/lamp", "/lamp/1", "/lamps", "other"} {
		fmt.Fprintf(&lines, `{"key":"%s","value":"v"}`+"\n", key)
	}
	mustInput(t, lines.String(), with("load")...)
	if out := must(t, with("del", "--prefix", "/lamp", "--dry-run")...); out != "/lamp\n/lamp/1\n/lamps\n" {
		t.Errorf("del --dry-run prints %q", out)
	}
	if out := must(t, with("del", "--prefix", "/many/")...); out != fmt.Sprintln(deletePart+10) {
		t.Errorf("del --prefix prints %q", out)
	}
	if out := must(t, with("del", "--prefix", "/lamp/", "--json")...); out != `{"deleted":1}`+"\n" {
		t.Errorf("del --prefix --json prints %q", out)
	}
	if out := must(t, with("ls")...); out != "/lamp\n/lamps\nother\n" {
		t.Errorf("left: %q", out)
	}
	for _, args := range [][]string{{"del", "--prefix", "/no/"}, {"del", "--prefix", "/no/", "--dry-run"}} {
		o := try(t, with(args...)...)
		o.expect(t, exitRefused, "no key in the map of "+s.endpoint+` begins with "/no/"`)
		if o.out != "" {
			t.Errorf("%v prints %q", args, o.out)
		}
	}
	if out := must(t, with("del", "--prefix", "", "--all")...); out != "3\n" {
		t.Errorf("del --prefix of all prints %q", out)
	}
}

// A prefix that has no name in it, as when a variable is not set, does not delete the whole map
// without --all. A name may: it is what the user meant, whatever else is in the map.
func TestDelSlashIsNotTheWholeMap(t *testing.T) {
	t.Parallel()
	s := serve(t)
	with := func(args ...string) []string { return append(args, "--server", s.endpoint) }
	must(t, with("set", "/a/1", "v")...)
	must(t, with("set", "/b/1", "v")...)
	for _, prefix := range []string{"", "/"} {
		for _, more := range [][]string{nil, {"--yes"}} {
			try(t, append(with("del", "--prefix", prefix), more...)...).expect(t, exitUsage, "add --all if the whole map is meant")
		}
		if out := must(t, with("del", "--prefix", prefix, "--dry-run")...); out != "/a/1\n/b/1\n" {
			t.Errorf("--dry-run prints %q", out)
		}
	}
	must(t, with("set", "plain", "v")...)
	if out := must(t, with("del", "--prefix", "/")...); out != "2\n" {
		t.Errorf("beside another key: %q", out)
	}
	try(t, with("del", "--prefix", "//")...).expect(t, exitRefused, "no key")
	must(t, with("set", "/c", "v")...)
	if out := must(t, with("del", "--prefix", "/", "--all")...); out != "1\n" { // not plain
		t.Errorf("with --all: %q", out)
	}
	if out := must(t, with("del", "--prefix", "p")...); out != "1\n" {
		t.Errorf("a name: %q", out)
	}
	try(t, with("del", "--prefix", "/")...).expect(t, exitRefused, "no key")
}
