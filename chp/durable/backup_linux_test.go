package durable

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/internal/tmpfs"
)

// TestBackupFullDisk: without room there is no backup, and the one before it stays;
// and without room nothing is restored.
func TestBackupFullDisk(t *testing.T) {
	t.Parallel()
	root := tmpfs.Mount(t, "size=512k")
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 50, 3)
	flush(t, l)
	file := filepath.Join(root, "b")
	before, err := Backup(context.Background(), dir, file)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1000, 3)
	closeLog(t, l)
	if _, err := Backup(context.Background(), dir, file); !errors.Is(err, commit.ErrFull) {
		t.Error(err)
	}
	only(t, root, "b")
	after, err := ReadBackup(file, func(e commit.Entry) error { return same(e) })
	if err != nil || after.Last != before.Last {
		t.Error(after, err)
	}

	large := filepath.Join(t.TempDir(), "b")
	if _, err := Backup(context.Background(), dir, large); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(root, "data")
	if _, err := Restore(context.Background(), large, to); !errors.Is(err, commit.ErrFull) {
		t.Error(err)
	}
	only(t, root, "b")
	if _, err := Restore(context.Background(), file, to); err != nil {
		t.Error(err)
	}
}

// TestBackupReadOnlyDisk: a log on a disk that is mounted for reading only can be
// backed up, and nothing can be restored to it.
func TestBackupReadOnlyDisk(t *testing.T) {
	t.Parallel()
	root := tmpfs.Mount(t, "size=1m")
	dir := filepath.Join(root, "log")
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 10, 1)
	closeLog(t, l)
	remountReadOnly(t, root)
	file := filepath.Join(t.TempDir(), "b")
	if info, err := Backup(context.Background(), dir, file); err != nil || info.Last != 10 {
		t.Error(info, err)
	}
	if _, err := Backup(context.Background(), dir, filepath.Join(root, "b")); !errors.Is(err, commit.ErrReadOnly) {
		t.Error(err)
	}
	if _, err := Restore(context.Background(), file, filepath.Join(root, "new")); !errors.Is(err, commit.ErrReadOnly) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "new")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
