package deps

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAllocsByHelper: tests count allocations with testenv.Allocs, which knows the
// race detector, the other processors and the rest of the process. A test that counts
// by itself fails now and then.
func TestAllocsByHelper(t *testing.T) {
	t.Parallel()
	helped := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("testing."+"AllocsPerRun")) {
			t.Errorf("%s counts allocations without testenv.Allocs", path)
		}
		helped += bytes.Count(text, []byte("testenv."+"Allocs("))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if helped < 30 {
		t.Errorf("found only %d uses of testenv.Allocs", helped)
	}
}
