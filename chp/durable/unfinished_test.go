package durable

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// TestUnfinishedFiles: the next backup of a name removes the unfinished files of a killed
// process, but neither a backup that is being made nor a file of another name.
func TestUnfinishedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "b")
	kept := []string{"b", "b.1.tmp2", "b.1x.tmp", "b.tmp", "b.x.tmp", "bb.1.tmp"}
	for _, name := range append([]string{"b.1.tmp", "b.23.tmp"}, kept...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, err := createUnfinished(file)
	if err != nil {
		t.Fatal(err)
	}
	second, err := createUnfinished(file)
	if err != nil {
		t.Fatal(err)
	}
	names := append([]string{filepath.Base(first.Name()), filepath.Base(second.Name())}, kept...)
	slices.Sort(names)
	only(t, dir, names...)
	for _, f := range []*os.File{first, second} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sweepUnfinished(file)
	only(t, dir, kept...)

	// Many at once do not take each other's files away.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				f, err := createUnfinished(file)
				if err != nil {
					t.Error(err)
					return
				}
				if !isFile(f, f.Name()) {
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
	only(t, dir, kept...)
}
