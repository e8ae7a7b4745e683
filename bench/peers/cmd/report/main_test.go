package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"--to", "a", "--from", "b"}, {"--from", t.TempDir()}, {"--from", "a", "more"}, {"--to", "a", "--rounds", "0"}, {"--to", "a", "--only", "("},
	} {
		if err := run(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

// TestFrom: stored results are printed and drawn, and nothing is measured.
func TestFrom(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	const text = `{"cases":[{"system":"chp","mode":"rate","rates":[4e6,5e6]},{"system":"other","mode":"rate","rates":[1e4],"ratios":[400]}]}`
	if err := os.WriteFile(filepath.Join(folder, "kv-rate.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--from", folder}, &out, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	plot := filepath.Join(folder, "systems-rate.svg")
	if _, err := os.Stat(plot); err != nil || !strings.Contains(out.String(), plot) || !strings.Contains(out.String(), "4.5 M/s") {
		t.Errorf("%v\n%s", err, &out)
	}
}
