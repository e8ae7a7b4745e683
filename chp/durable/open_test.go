package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMissingMeta: entries without metadata are not thrown away as an
// interrupted creation.
func TestMissingMeta(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 1, 1)
	closeLog(t, l)
	os.Remove(filepath.Join(dir, metaName))
	if _, err := Open(dir, Options{}); isCorrupt(err) == nil {
		t.Error("opened:", err)
	}
}
