package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"clustermap/chp"
	"clustermap/internal/tmpfs"
)

// TestDiscardedUpdatesOnFullDisk: updates that do not fit into the file of --diverged leave no part
// of them there, so that load can read what is written when there is room.
func TestDiscardedUpdatesOnFullDisk(t *testing.T) {
	t.Parallel()
	name := filepath.Join(tmpfs.Mount(t, "size=64k"), "diverged.jsonl")
	add := func(size int) error {
		_, err := appendEntries(name, chp.Divergence{Entries: slices.Values([]chp.Entry{{Key: []byte("/a"), Value: make([]byte, size)}})})
		return err
	}
	if err := add(10); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(name)
	if err := add(100_000); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(name); string(after) != string(before) {
		t.Errorf("%d bytes after %d", len(after), len(before))
	}
	if err := add(10); err != nil {
		t.Fatal(err)
	}
}
