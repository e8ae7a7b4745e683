package main

import (
	"strings"
	"testing"
)

// fields splits lines into columns.
func fields(text string) [][]string {
	var lines [][]string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// ls lists keys in order, get --prefix their values, and --json shows sequences and times
// to live.
func TestLs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := []string{"--server", s.endpoint}
	with := func(args ...string) []string { return append(args, at...) }
	for _, args := range [][]string{{"ls"}, {"ls", "-l"}} {
		if out := must(t, with(args...)...); out != "" {
			t.Errorf("%q of an empty map prints %q", args, out)
		}
	}
	sequences := map[string]string{}
	for _, kv := range [][]string{{"/lamp/2", "off"}, {"/lamp/10", "on"}, {"/lamps", "3"}, {"plain", "p q"}, {"with space", "x"}} {
		sequences[kv[0]] = strings.TrimSpace(must(t, with("set", kv[0], kv[1])...))
	}
	dim := must(t, with("set", "/lamp/1", "dim", "--ttl", "1h", "--json")...)
	out := object(t, dim)
	if out["key"] != "/lamp/1" || len(out) != 2 {
		t.Errorf("set --json: %v", out)
	}
	for args, want := range map[string]string{
		"ls":         "/lamp/1\n/lamp/10\n/lamp/2\n/lamps\nplain\n\"with space\"\n",
		"ls /lamp/":  "/lamp/1\n/lamp/10\n/lamp/2\n",
		"ls /lamp/1": "/lamp/1\n/lamp/10\n",
		"ls /lamp":   "/lamp/1\n/lamp/10\n/lamp/2\n/lamps\n",
		"ls /":       "/lamp/1\n/lamp/10\n/lamp/2\n/lamps\n",
		"ls p":       "plain\n",

		"get --prefix /lamp/": "/lamp/1 dim\n/lamp/10 on\n/lamp/2 off\n",
		"get --prefix p":      "plain p q\n",
		"get --json /lamp/2":  `{"key":"/lamp/2","value":"off","seq":"` + sequences["/lamp/2"] + "\"}\n",
		"get --prefix /lamps --json": `{"key":"/lamps","value":"3","seq":"` +
			sequences["/lamps"] + "\"}\n",
		"ls --json plain": `{"key":"plain","size":3,"seq":"` + sequences["plain"] + "\"}\n",
	} {
		if out := must(t, with(strings.Fields(args)...)...); out != want {
			t.Errorf("%s prints %q, want %q", args, out, want)
		}
	}
	long := fields(must(t, with("ls", "-l", "/lamp/1")...))
	want := [][]string{{"SIZE", "TTL", "SEQUENCE", "KEY"}, {"3", long[1][1], out["seq"].(string), "/lamp/1"}, {"2", "-", sequences["/lamp/10"], "/lamp/10"}}
	for i := range want {
		if strings.Join(long[i], " ") != strings.Join(want[i], " ") {
			t.Errorf("line %d is %q, want %q", i, long[i], want[i])
		}
	}
	if ttl := long[1][1]; !strings.HasSuffix(ttl, "s") || len(ttl) < 4 {
		t.Errorf("time to live %q", ttl)
	}
	if ttl := object(t, must(t, with("get", "/lamp/1", "--json")...))["ttl"].(float64); ttl <= 0 || ttl > 3600 {
		t.Errorf("time to live %v", ttl)
	}
	for _, args := range [][]string{{"ls", "/no/"}, {"ls", "-l", "/no/"}, {"ls", "--json", "/no/"}} {
		o := try(t, with(args...)...)
		o.expect(t, exitRefused, `no key in the map of `+s.endpoint+` begins with "/no/"`)
		if o.out != "" {
			t.Errorf("%q prints %q", args, o.out)
		}
	}
	try(t, with("ls", "//")...).expect(t, exitRefused, `begins with "//"`)
	try(t, with("get", "--prefix", "/no/")...).expect(t, exitRefused, `no key in the map of `+s.endpoint+` begins with "/no/"`)
	if out := object(t, must(t, with("del", "/lamp/1", "--json")...)); out["key"] != "/lamp/1" || len(out["seq"].(string)) == 0 {
		t.Errorf("del --json: %v", out)
	}
}

// Bytes that are not UTF-8 are in base64, as in watch and dump.
func TestLsOfBytes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	mustInput(t, "\x00\xff", "set", "/\xff", "-", "--server", s.endpoint)
	if e := object(t, must(t, "get", "--json", "/\xff", "--server", s.endpoint)); e["key_base64"] != "L/8=" || e["value_base64"] != "AP8=" {
		t.Errorf("%v", e)
	}
	if out := must(t, "ls", "--server", s.endpoint); out != "\"/\\xff\"\n" {
		t.Errorf("%q", out)
	}
}

func TestTreeOf(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{
		"": "", "a": "", "/": "", "/a": "", "/a/": "/a/", "/a/b": "/a/", "a/b": "", "//": "", "//a/": "", "/a/\x00/": "",
		"/a//": "/a//", "/" + strings.Repeat("x", 300) + "/": "",
	} {
		if got := strings.Join(treeOf(prefix), " "); got != want {
			t.Errorf("treeOf(%.20q) = %.20q, want %q", prefix, got, want)
		}
	}
}
