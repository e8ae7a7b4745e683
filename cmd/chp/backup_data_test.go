package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var ttlField = regexp.MustCompile(`"ttl":([0-9.]+)`)

// dumped returns the dump of a server, without the times that change.
func dumped(t *testing.T, s *server) string {
	t.Helper()
	return ttlField.ReplaceAllStringFunc(must(t, "dump", "--server", s.endpoint), func(f string) string {
		var seconds float64
		fmt.Sscanf(f, `"ttl":%g`, &seconds)
		if seconds < 3000 || seconds > 3600 {
			t.Errorf("%s seconds are left of an hour", f)
		}
		return `"ttl":"about an hour"`
	})
}

// A server on a restored backup has the map of the one that was saved, whether the
// backup was made from its directory while it ran, from the directory after it was
// killed, or over the network.
func TestBackupOfServerWithData(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	data := filepath.Join(out, "data")
	s := serveApart(t, "--data", data, "--sync", "always")
	fill(t, s, 500)
	must(t, "set", "/lease", "on lease", "--ttl", "1h", "--server", s.endpoint)
	must(t, "del", "/fill/7", "--server", s.endpoint)
	last := strings.TrimSpace(must(t, "set", "/fill/0", "changed", "--server", s.endpoint))
	want := dumped(t, s)
	if !strings.Contains(want, "about an hour") {
		t.Error("no time to live in the dump")
	}

	files := map[string]string{"running": filepath.Join(out, "running"), "wire": filepath.Join(out, "wire"), "killed": filepath.Join(out, "killed")}
	try(t, "backup", data, files["running"]).expect(t, exitDone, "up to sequence "+last)
	try(t, "backup", "--server", s.endpoint, files["wire"]).expect(t, exitDone, "500 keys at sequence "+last)
	if got := must(t, "fsck", data); !strings.Contains(got, "last sequence "+last+"\n") {
		t.Error(got)
	}
	s.signal(syscall.SIGKILL)
	s.wait()
	must(t, "fsck", data)
	try(t, "backup", data, files["killed"]).expect(t, exitDone, "up to sequence "+last)

	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			must(t, "fsck", file)
			must(t, "restore", file, dir)
			s := serveApart(t, "--data", dir)
			if have := dumped(t, s); have != want {
				t.Errorf("the map is\n%.500s\nwant\n%.500s", have, want)
			}
			next := strings.TrimSpace(must(t, "set", "/new", "1", "--server", s.endpoint))
			if len(next) < len(last) || len(next) == len(last) && next <= last {
				t.Errorf("the next sequence is %s, the last one was %s", next, last)
			}
			// It goes on from there.
			s.signal(syscall.SIGTERM)
			s.wait()
			must(t, "fsck", dir)
			s = serveApart(t, "--data", dir)
			if got := must(t, "get", "/new", "--server", s.endpoint); got != "1\n" {
				t.Errorf("%q", got)
			}
		})
	}
}
