//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/testenv"
)

// A directory and a subtree are kept equal until the command is interrupted; with --once it ends by
// itself, and says by its exit code whether all is equal.
func TestSyncCommand(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dir := filepath.Join(t.TempDir(), "new", "dir")
	at := []string{"--server", s.endpoint}
	must(t, append(at, "set", "/c/a", "1")...)
	p := start(t, append(at, "sync", dir, "/c/")...)
	if got := p.line(); got != "written a" {
		t.Errorf("%q", got)
	}
	p.Await("chp: in sync: 1 file\n")
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "b"), []byte("2"), 0o600))
	if got := p.line(); got != "set b" {
		t.Errorf("%q", got)
	}
	if got := must(t, append(at, "get", "/c/b")...); got != "2\n" {
		t.Errorf("%q", got)
	}
	must(t, append(at, "del", "/c/a")...)
	if got := p.line(); got != "removed a" {
		t.Errorf("%q", got)
	}
	p.terminate()
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "c"), []byte("3"), 0o600))
	if got := must(t, append(at, "sync", dir, "/c/", "--to", "map", "--once")...); got != "set c\n" {
		t.Errorf("%q", got)
	}
	testenv.Must(t, os.Remove(filepath.Join(dir, "b")))
	if got := must(t, append(at, "sync", dir, "/c/", "--to", "map", "--once", "--delete", "--quiet")...); got != "" {
		t.Errorf("%q", got)
	}
	if got := must(t, append(at, "ls", "/c/")...); got != "/c/c\n" {
		t.Errorf("%q", got)
	}
	must(t, append(at, "set", "/c/../../evil", "x")...)
	try(t, append(at, "sync", dir, "/c/", "--once")...).expect(t, exitRefused, `chp: the key "/c/../../evil" is no file`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{dir, "c"}, "must begin and end with a slash"},
		{[]string{dir, "/c/", "--to", "nowhere"}, "must be both, dir or map"},
		{[]string{dir, "/c/", "--delete"}, "--delete needs --to"},
		{[]string{dir, "/c/", "--max-files", "0"}, "must be above 0"},
	} {
		try(t, append([]string{"sync"}, c.args...)...).expect(t, exitUsage, c.want)
	}
	file := filepath.Join(dir, "c")
	if o := try(t, append(at, "sync", file, "/c/")...); o.code != exitRefused || !strings.Contains(o.stderr, "not a directory") {
		t.Errorf("%d %s", o.code, o.stderr)
	}
}
