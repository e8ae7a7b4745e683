//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/internal/testenv"
)

// A key file that other users can read or change is used with a warning, and one that is
// the user's alone without.
func TestKeyFileOfOthers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	must(t, "keygen", "--out", file)
	for mode, want := range map[os.FileMode]string{0o600: "", 0o400: "", 0o640: "read", 0o604: "read", 0o620: "change", 0o666: "change"} {
		testenv.Must(t, os.Chmod(file, mode))
		o := try(t, "get", "/a", "--curve-key", file, "--curve-server-key", file, "--server", "tcp://127.0.0.1:1", "--timeout", "10ms")
		warning := "chp: warning: other users can " + want + " the key file " + file + "; unless that is meant: chmod 600 " + file + "\n"
		if want == "" && strings.Contains(o.stderr, "warning") || want != "" && strings.Count(o.stderr, warning) != 1 {
			t.Errorf("mode %o: %q", mode, o.stderr)
		}
	}
}

// No message repeats what may be a secret key: in a list of the keys to accept, in the name
// of a file, or as the value of a flag.
func TestMistypedKeyIsNotRepeated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	must(t, "keygen", "--out", file)
	text, err := os.ReadFile(file)
	testenv.Must(t, err)
	_, secret, _ := strings.Cut(strings.TrimSpace(string(text)), "secret ")
	for i, value := range []string{"secret " + secret, "x" + secret, secret[:39], secret + "\n" + secret[1:]} {
		list := filepath.Join(dir, string(rune('a'+i)))
		testenv.Must(t, os.WriteFile(list, []byte(value+"\n"), 0o600))
		for _, args := range [][]string{
			{"serve", "--port", "0", "--curve-key", file, "--curve-allow", list},
			{"serve", "--port", "0", "--curve-key", file, "--curve-allow", value + ","},
			{"serve", "--port", "0", "--curve-key", value, "--curve-allow", "any"},
			{"get", "/a", "--curve-key", file, "--curve-server-key", value + ","},
			{"get", "/a", "--curve-key", file, "--curve-server-key", list},
			{"context", "set", "x", "--server", "tcp://127.0.0.1:1", "--curve-key", value, "--curve-server-key", file},
		} {
			o := try(t, args...)
			if o.code != exitUsage || strings.Contains(o.out+o.stderr, secret[1:39]) {
				t.Errorf("%q: exit code %d: %q", value, o.code, o.stderr)
			}
		}
	}
}
