//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/testenv"
)

// With --log-format json every line on standard error is an object: the log, the line
// with "ready", warnings about files and errors.
func TestEveryLineOfALogInJSONIsAnObject(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	must(t, "keygen", "--out", file)
	testenv.Must(t, os.Chmod(file, 0o644))
	check := func(text string, want ...string) {
		t.Helper()
		for line := range strings.Lines(text) {
			var o map[string]any
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Errorf("%v: %s", err, line)
			}
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in %s", w, text)
			}
		}
	}
	curve := []string{"--curve-key", file, "--curve-allow", "any", "--log-level", "info", "--log-format", "json"}
	s := start(t, append([]string{"serve", "--port", "0"}, curve...)...)
	s.Await(`chp: ready: .*\n`)
	s.signal(syscall.SIGTERM)
	s.wait()
	check(s.Stderr.String(), "other users can read the key file", "clients need --curve-server-key", `"msg":"stopped"`)
	check(try(t, append([]string{"serve", "--host", "192.0.2.1"}, curve...)...).stderr, "other users can read the key file", "--host")
	check(try(t, append([]string{"serve", "--port", "-1"}, curve...)...).stderr, "--port")
	check(try(t, "serve", "--log-format", "json", "--curve-allow", "any").stderr, "--curve-key")
}
