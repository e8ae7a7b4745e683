package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Errors in tests, for one system or machine alone, are found.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module scratch\n\ngo 1.26\n",
		"p.go":            "package p\n",
		"signal_test.go":  "package p\n\nimport \"syscall\"\n\nvar _ = syscall.SIGSTOP\n",
		"number_test.go":  "package p\n\nvar _ int = 1 << 40\n",
		"helper_linux.go": "package p\n\nfunc helper() {}\n",
		"outer_test.go":   "package p_test\n\nimport _ \"scratch\"\n",
		"call_test.go":    "package p\n\nvar _ = helper\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for target, want := range map[string][]string{
		"linux/amd64":   nil,
		"linux/386":     {"number_test.go"},
		"freebsd/arm64": {"call_test.go"},
		"windows/386":   {"call_test.go", "number_test.go", "signal_test.go"},
	} {
		system, machine, _ := strings.Cut(target, "/")
		tests, problems, err := check(dir, system, machine)
		if err != nil || tests != 2 || len(problems) != len(want) {
			t.Errorf("%s: %d packages with tests, %q, %v, want errors in %v", target, tests, problems, err, want)
			continue
		}
		for i, file := range want {
			if !strings.Contains(problems[i], file) {
				t.Errorf("%s: %q, want %s", target, problems, file)
			}
		}
	}
}
