package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// A value over the server's limit is refused, at once and with this reason.
func TestValueOverTheServersLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, "--max-value-size", "1KiB")
	big := strings.Repeat("v", 2000)
	begun := time.Now()
	o := tryInput(t, big, "set", "/k", "-", "--timeout", "1m", "--server", s.endpoint)
	o.expect(t, exitRefused, "larger than the server "+s.endpoint+" accepts (over the server's limit of 1024 bytes)")
	tryInput(t, `{"key":"/a","value":"1"}
{"key":"/b","value":"`+big+`"}
`, "load", "--timeout", "1m", "--server", s.endpoint).expect(t, exitRefused, "standard input, line 2: ")
	if passed := time.Since(begun); passed > 50*time.Second {
		t.Errorf("refused after %v", passed)
	}
	if got := must(t, "dump", "--server", s.endpoint); got != `{"key":"/a","value":"1"}`+"\n" {
		t.Errorf("the map holds %.100s", got)
	}
}

// Values that the server was told to take reach every client, with no option of
// its own.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	s := serve(t, "--max-value-size", "64MiB")
	value := bytes.Repeat([]byte("0123456789abcdef"), 17<<20/16)
	mustInput(t, string(value), "set", "/big", "-", "--timeout", "2m", "--server", s.endpoint)
	must(t, "set", "/small", "1", "--server", s.endpoint)
	if got := must(t, "get", "/small", "--timeout", "2m", "--server", s.endpoint); got != "1\n" {
		t.Errorf("got %q", got)
	}
	if got := must(t, "get", "--raw", "/big", "--timeout", "2m", "--server", s.endpoint); got != string(value) {
		t.Errorf("%d bytes came back as %d", len(value), len(got))
	}
	if dump := must(t, "dump", "--timeout", "2m", "--server", s.endpoint); len(dump) < len(value) || strings.Count(dump, "\n") != 2 {
		t.Errorf("a dump of %d bytes", len(dump))
	}
}
