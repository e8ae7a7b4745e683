package testenv

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what tests print into their files in testdata")

// Update reports whether tests are to write the files that they compare with.
func Update() bool { return *update }

// Script runs a test that is a file: commands, each a line with what it prints behind it.
//
//	# a comment
//	command with arguments
//	----
//	what it prints, up to an empty line
//
// run executes a command and returns what it prints. The test fails where the file has
// something else; with the flag -update the file gets what was printed.
func Script(t testing.TB, path string, run func(command string, args []string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		i++
		out.WriteString(line + "\n")
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		got := strings.TrimRight(run(fields[0], fields[1:]), "\n")
		at := i
		var want []string
		if i < len(lines) && lines[i] == "----" {
			for i++; i < len(lines) && lines[i] != ""; i++ {
				want = append(want, lines[i])
			}
		}
		if w := strings.Join(want, "\n"); w != got && !*update {
			t.Errorf("%s:%d: %s\ngot:\n%s\nwant:\n%s", path, at, line, got, w)
		}
		out.WriteString("----\n")
		if got != "" {
			out.WriteString(got + "\n")
		}
		if i == len(lines) || lines[i] != "" {
			out.WriteString("\n")
		}
	}
	if *update {
		if err := os.WriteFile(path, append(bytes.TrimRight(out.Bytes(), "\n"), '\n'), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
