package docs

import (
	"slices"
	"strings"
	"testing"
)

// TestOperationsAreScripts: each procedure of OPERATIONS.md is a script, which
// TestShellBlocks runs, and the list at its beginning has all of them.
func TestOperationsAreScripts(t *testing.T) {
	t.Parallel()
	const table = "## When something else is wrong"
	text := page(t, "OPERATIONS.md")
	var scripts []string
	for _, b := range blocks(t, "sh") {
		if b.page == "OPERATIONS.md" {
			scripts = append(scripts, b.section)
		}
	}
	procedures := 0
	for line := range strings.Lines(text) {
		heading, ok := strings.CutPrefix(strings.TrimSpace(line), "## ")
		if !ok {
			continue
		}
		procedures++
		if !strings.Contains(text, "\n- ["+heading+"](#") {
			t.Errorf("%q is not in the list", heading)
		}
		if "## "+heading != table && !slices.Contains(scripts, "## "+heading) {
			t.Errorf("%q has no script", heading)
		}
	}
	if procedures < 10 {
		t.Errorf("found only %d procedures", procedures)
	}
}
