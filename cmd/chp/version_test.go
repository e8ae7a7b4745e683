package main

import (
	"runtime"
	"strings"
	"testing"
)

// chp version prints how it was built.
func TestVersion(t *testing.T) {
	t.Parallel()
	text := must(t, "version")
	if !strings.HasPrefix(text, "chp ") || !strings.Contains(text, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH) {
		t.Errorf("%s", text)
	}
	if revision := strings.Contains(text, "\nrevision "); strings.HasPrefix(text, "chp  ") || !revision && strings.Contains(text, "  ") {
		t.Errorf("two spaces in %q", text)
	}
	b := object(t, must(t, "version", "--json"))
	for field, want := range map[string]any{"program": "chp", "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH} {
		if b[field] != want {
			t.Errorf("%s is %v, want %v", field, b[field], want)
		}
	}
	if version, _ := b["version"].(string); version == "" || !strings.Contains(must(t, "--version"), version) {
		t.Errorf("version %q", version)
	}
	if revision, ok := b["revision"]; ok && !strings.Contains(text, revision.(string)) {
		t.Errorf("%s has no %v", text, revision)
	}
}
