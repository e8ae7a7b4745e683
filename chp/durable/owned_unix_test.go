//go:build unix

package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/format"
	"clustermap/internal/testenv"
)

// TestLogWithoutItsDirectory: a log whose directory was removed, or whose lock, accepts nothing
// more, so that nothing is acknowledged that is nowhere, and two processes do not write to one
// log.
func TestLogWithoutItsDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{format.LockName, ""} {
		dir := filepath.Join(t.TempDir(), "log")
		l, _ := mustOpen(t, dir)
		fill(t, l, 10, 3)
		testenv.Must(t, l.Sync())
		testenv.Must(t, os.RemoveAll(filepath.Join(dir, name)))
		other, r := mustOpen(t, dir)
		fill(t, other, r.Last+10, 1)
		for what, err := range map[string]error{
			"Append": l.Append(entry(11)), "Sync": l.Sync(), "SetEpoch": l.SetEpoch(9), "Close": l.Close(),
		} {
			if !errors.Is(err, commit.ErrFailed) {
				t.Errorf("%q removed: %s: %v", name, what, err)
			}
		}
		fill(t, other, r.Last+20, 1)
		last := other.Last()
		closeLog(t, other)
		if _, r := mustOpen(t, dir); r.Last != last || r.Torn != nil {
			t.Errorf("%q removed: %+v, want %d", name, r, last)
		}
	}
}

// TestRemovedSegmentFailsTheFlush: a flush of a segment that has no name any more, because someone
// has removed it or moved it to another disk, does not succeed: a restart would not find it.
func TestRemovedSegmentFailsTheFlush(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 10, 3)
	testenv.Must(t, l.Sync())
	all, err := filepath.Glob(filepath.Join(dir, format.LogName, "*.wal"))
	testenv.Must(t, err)
	for _, path := range all {
		testenv.Must(t, os.Remove(path))
	}
	testenv.Must(t, l.Append(entry(11)))
	for range 2 {
		if err := l.Sync(); !errors.Is(err, commit.ErrFailed) {
			t.Errorf("a flush of nothing: %v", err)
		}
	}
	if l.Synced() != 10 {
		t.Errorf("flushed up to %d", l.Synced())
	}
}

// TestMovedLogLeavesItsPlaceAlone: a log whose directory was moved goes on there while it can,
// and changes nothing in the directory that has its name now.
func TestMovedLogLeavesItsPlaceAlone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, moved := filepath.Join(root, "log"), filepath.Join(root, "moved")
	l, _ := mustOpen(t, dir)
	fill(t, l, 20, 3)
	c, err := l.Checkpoint(15, 1)
	testenv.Must(t, err)
	testenv.Must(t, os.Rename(dir, moved))
	other, _ := mustOpen(t, dir)
	fill(t, other, 120, 3)
	print := fingerprint(t, dir)
	fill(t, l, 25, 1)
	testenv.Must(t, l.Sync())
	if err := c.Commit(); !errors.Is(err, commit.ErrFailed) {
		t.Error("Commit of a checkpoint:", err)
	}
	testenv.Must(t, l.lock.Close())
	l.Close()
	l, r := mustOpen(t, moved)
	if r.Last != 25 {
		t.Errorf("%+v", r)
	}
	testenv.Must(t, os.Rename(moved, moved+"2"))
	for i := uint64(26); err == nil; i++ {
		err = l.Append(entry(i))
	}
	if seq, _ := l.w.Place(); !errors.Is(err, commit.ErrFailed) || seq != 0 {
		t.Error("a new segment:", err)
	}
	l.Close()
	if !equal(print, fingerprint(t, dir)) {
		t.Error("the directory in its place was changed")
	}
	fill(t, other, 200, 3)
	closeLog(t, other)
}
