//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"clustermap/internal/testenv"
)

// With --log-format json every line on standard error is an object: the log, the line
// with "ready", warnings about files and errors. What ends the command is of level ERROR,
// so that who reads only those learns why a server does not run.
func TestEveryLineOfALogInJSONIsAnObject(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	must(t, "keygen", "--out", file)
	testenv.Must(t, os.Chmod(file, 0o644))
	check := func(text string, want ...string) {
		t.Helper()
		var lines []string // level and msg of each
		for line := range strings.Lines(text) {
			var o struct{ Level, Msg string }
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Errorf("%v: %s", err, line)
			}
			lines = append(lines, o.Level+" "+o.Msg)
		}
		for _, w := range want {
			level, msg, _ := strings.Cut(w, " ")
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, level+" ") && strings.Contains(l, msg) }) {
				t.Errorf("%q is not in %s", w, text)
			}
		}
	}
	curve := []string{"--curve-key", file, "--curve-allow", "any", "--log-level", "info", "--log-format", "json"}
	s := start(t, append([]string{"serve", "--port", "0"}, curve...)...)
	s.Await(`chp: ready: .*\n`)
	s.signal(syscall.SIGTERM)
	s.wait()
	check(s.Stderr.String(), "WARN other users can read the key file", "INFO clients need --curve-server-key", "INFO stopped")
	check(try(t, append([]string{"serve", "--host", "192.0.2.1"}, curve...)...).stderr, "WARN other users can read the key file", "ERROR --host")
	check(try(t, append([]string{"serve", "--port", "-1"}, curve...)...).stderr, "ERROR --port")
	check(try(t, append([]string{"serve", "--port", "many"}, curve...)...).stderr, `ERROR chp: --port: "many"`, "ERROR see: chp serve --help")
	check(try(t, "serve", "--nonsense", "--log-format=json").stderr, "ERROR chp: ")
	check(try(t, "serve", "operand", "--log-format=json").stderr, "ERROR")
	check(try(t, "serve", "--log-format", "json", "--http", "nowhere").stderr, "ERROR --http")
	check(try(t, "serve", "--log-format", "json", "--curve-allow", "any").stderr, "ERROR --curve-key")
	check(try(t, append([]string{"serve", "--data", file}, curve...)...).stderr, "ERROR --data")
}
