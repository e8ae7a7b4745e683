package main

import (
	"strconv"
	"strings"
	"testing"
)

func TestSetGetDel(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"--server", s.endpoint}
	run := func(args ...string) string { t.Helper(); return must(t, append(args, at...)...) }

	last := int64(0)
	sequence := func(out string) {
		t.Helper()
		n, err := strconv.ParseInt(strings.TrimSuffix(out, "\n"), 10, 64)
		if err != nil || n <= last {
			t.Errorf("sequence %q after %d", out, last)
		}
		last = n
	}
	sequence(run("set", "/lamp/1", "on"))
	sequence(run("set", "/lamp/1", "off and on"))
	if got := run("get", "/lamp/1"); got != "off and on\n" {
		t.Errorf("got %q", got)
	}
	if got := run("get", "/lamp/1", "--raw"); got != "off and on" {
		t.Errorf("got %q", got)
	}
	sequence(run("del", "/lamp/1"))
	for _, args := range [][]string{{"get", "/lamp/1"}, {"del", "/lamp/1"}, {"get", "/lamp"}, {"get", "/lamp/"}} {
		o := try(t, append(args, at...)...)
		o.expect(t, exitRefused, "is not in the map")
		if o.out != "" {
			t.Errorf("stdout %q", o.out)
		}
	}
}

func TestKeysWithSlashes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, key := range []string{"plain", "/", "//", "a/", "/a/", "/a/b/", "with blank", "é", "\xff\xfe"} {
		must(t, "set", key, "of "+key, "--server", s.endpoint)
	}
	for _, key := range []string{"plain", "/", "//", "a/", "/a/", "/a/b/", "with blank", "é", "\xff\xfe"} {
		if got := must(t, "get", "--raw", key, "--server", s.endpoint); got != "of "+key {
			t.Errorf("%q: got %q", key, got)
		}
	}
}

func TestValueFromStandardInput(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, value := range map[string]string{
		"binary": "\x00\x01\xff\n\r\n",
		"large":  strings.Repeat("0123456789abcdef", 1<<18),
	} {
		mustInput(t, value, "set", name, "-", "--server", s.endpoint)
		if got := must(t, "get", "--raw", name, "--server", s.endpoint); got != value {
			t.Errorf("%s: %d bytes came back as %d", name, len(value), len(got))
		}
	}
}

func TestRefusedUpdates(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, c := range []struct {
		key, value, want string
	}{
		{"", "v", "empty"},
		{"k", "", "use: chp del k\n"},
		{"$k", "", "use: chp del '$k'\n"},
		{"HUGZ", "v", "HUGZ"},
		{"HUGZ/more", "v", "HUGZ"},
		{"KTHXBAI", "v", "KTHXBAI"},
		{strings.Repeat("k", 256), "v", "255"},
	} {
		o := try(t, "set", c.key, c.value, "--server", s.endpoint)
		o.expect(t, exitUsage, c.want)
		if strings.Contains(o.stderr[5:], "chp: ") {
			t.Errorf("the package's name in %q", o.stderr)
		}
	}
	try(t, "set", "k", "-", "--server", s.endpoint).expect(t, exitRefused, "chp del")
	try(t, "get", "", "--server", s.endpoint).expect(t, exitUsage, "empty")
	try(t, "get", "HUGZ", "--server", s.endpoint).expect(t, exitUsage, "HUGZ")
	try(t, "del", "HUGZ", "--server", s.endpoint).expect(t, exitUsage, "HUGZ")
	try(t, "set", "k", "v", "--ttl", "1000000h", "--server", s.endpoint).expect(t, exitUsage, "ten years")
	// Each error names the key and its fault.
	for _, key := range []string{"KTHXBAI", "HUGZ"} {
		for _, args := range [][]string{{"set", key, "v"}, {"get", key}, {"del", key}} {
			o := try(t, append(args, "--server", s.endpoint)...)
			o.expect(t, exitUsage, "the key \""+key+"\" is reserved")
		}
	}
	try(t, "get", strings.Repeat("k", 256), "--server", s.endpoint).expect(t, exitUsage, "has 256 bytes")
	if got := must(t, "dump", "--server", s.endpoint); got != "" {
		t.Errorf("the map holds %s", got)
	}
}

func TestTimeToLive(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := start(t, "watch", "--json", "goes", "stays", "--server", s.endpoint)
	w.line() // synced
	must(t, "set", "stays", "1", "--server", s.endpoint)
	must(t, "set", "goes", "1", "--ttl", "100ms", "--server", s.endpoint)
	for {
		if e := object(t, w.line()); e["op"] == "del" && e["key"] == "goes" {
			break
		}
	}
	try(t, "get", "goes", "--server", s.endpoint).expect(t, exitRefused, "not in the map")
	must(t, "get", "stays", "--server", s.endpoint)
}

// A server that is stopped accepts the update and cannot confirm it.
func TestUpdateThatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	s := serve(t, "--max-value-size", "1KiB")
	o := tryInput(t, strings.Repeat("v", 2000), "set", "k", "-", "--timeout", "1s", "--server", s.endpoint)
	if o.code == exitDone {
		t.Errorf("a value that the server refuses was confirmed: %q", o.out)
	}
	must(t, "set", "k", "v", "--server", s.endpoint)
}
