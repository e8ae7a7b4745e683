package file

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// TestUnfinishedFiles: whoever makes a file again removes the unfinished files of a killed
// process, but neither one that is being written nor a file of another name.
func TestUnfinishedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	only := func(want ...string) {
		t.Helper()
		found, err := os.ReadDir(dir)
		var have []string
		for _, d := range found {
			have = append(have, d.Name())
		}
		if err != nil || !slices.Equal(have, want) {
			t.Fatalf("%s has %q, %v; want %q", dir, have, err, want)
		}
	}
	file := filepath.Join(dir, "b")
	kept := []string{"b", "b.1.tmp2", "b.1x.tmp", "b.tmp", "b.x.tmp", "bb.1.tmp"}
	for _, name := range append([]string{"b.1.tmp", "b.23.tmp"}, kept...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, err := CreateUnfinished(file)
	if err != nil {
		t.Fatal(err)
	}
	second, err := CreateUnfinished(file)
	if err != nil {
		t.Fatal(err)
	}
	names := append([]string{filepath.Base(first.Name()), filepath.Base(second.Name())}, kept...)
	slices.Sort(names)
	only(names...)
	for _, f := range []*os.File{first, second} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sweepUnfinished(file)
	only(kept...)

	// Many at once do not take each other's files away.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				f, err := CreateUnfinished(file)
				if err != nil {
					t.Error(err)
					return
				}
				if !IsFile(f, f.Name()) {
					t.Error("a file that is being written was removed")
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	sweepUnfinished(file)
	only(kept...)
}
