package version

import (
	"os"
	"strings"
	"testing"
)

// Module is the path in go.mod.
func TestModule(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if line, _, _ := strings.Cut(string(text), "\n"); line != "module "+Module {
		t.Errorf("Module is %s, and go.mod begins with %s", Module, line)
	}
}
