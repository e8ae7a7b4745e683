package durable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/internal/testenv"
)

// TestFailingFlush: a flush that fails is final, also when the next one would
// succeed.
func TestFailingFlush(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := errors.New("broken")
	var failing atomic.Bool
	var calls atomic.Int32
	d := file.Real
	d.Data = func(f *os.File) error {
		calls.Add(1)
		if failing.Swap(false) { // once: as the system reports it
			return broken
		}
		return file.Real.Data(f)
	}
	l, _, err := tryOpen(dir, d)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 10, 1)
	flush(t, l)
	fill(t, l, 20, 1)
	failing.Store(true)
	if err := l.Sync(); !errors.Is(err, commit.ErrFailed) || !errors.Is(err, broken) {
		t.Fatal("Sync:", err)
	}
	n := calls.Load()
	for name, err := range map[string]error{
		"Sync":     l.Sync(),
		"Append":   l.Append(entry(21)),
		"Read":     l.Read(1, nil),
		"CutBack":  l.CutBack(10),
		"SetEpoch": l.SetEpoch(9),
		"Err":      l.Err(),
		"Close":    l.Close(),
	} {
		if !errors.Is(err, commit.ErrFailed) {
			t.Error(name, err)
		}
	}
	if calls.Load() != n {
		t.Error("a failed log was flushed again")
	}
	if l.Synced() != 10 {
		t.Error("synced", l.Synced())
	}
	_, r := mustOpen(t, dir)
	if r.Last < 10 || r.Last > 20 || r.Committed > 10 {
		t.Errorf("%+v", r)
	}
}

// TestFailingFlushOfGroup: a call that waits for the disk returns the failure.
func TestFailingFlushOfGroup(t *testing.T) {
	t.Parallel()
	for _, policy := range []commit.Policy{commit.Always(), commit.Interval(1e6)} {
		d := file.Real
		var after atomic.Int32
		after.Store(1000)
		d.Data = func(f *os.File) error {
			if after.Add(-1) < 0 {
				return syscall.EIO
			}
			return file.Real.Data(f)
		}
		l, _, err := tryOpen(t.TempDir(), d)
		if err != nil {
			t.Fatal(err)
		}
		ctx := testenv.Context(t)
		g := commit.NewGroup(l, commit.GroupOptions{Policy: policy})
		i, err := g.Append(ctx, entry(1))
		if err == nil {
			err = g.Wait(ctx, i)
		}
		if err != nil || g.Durable() != 1 {
			t.Fatal(err)
		}
		after.Store(0)
		i, err = g.Append(ctx, entry(2))
		if err == nil {
			err = g.Wait(ctx, i)
		}
		if !errors.Is(err, syscall.EIO) || g.Durable() != 1 {
			t.Errorf("%v: Wait: %v, durable %d", policy, err, g.Durable())
		}
		if _, err := g.Append(ctx, entry(3)); !errors.Is(err, commit.ErrFailed) {
			t.Errorf("%v: Append: %v", policy, err)
		}
		if err := g.Close(); !errors.Is(err, commit.ErrFailed) {
			t.Errorf("%v: Close: %v", policy, err)
		}
		l.Close()
	}
}

// TestFailingCheckpoint: a checkpoint that cannot be written leaves the log as
// it was.
func TestFailingCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := file.Real
	d.Data = func(f *os.File) error {
		if strings.HasPrefix(filepath.Base(f.Name()), "checkpoint-") {
			return syscall.EIO
		}
		return file.Real.Data(f)
	}
	l, _, err := tryOpen(dir, d)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 10, 1)
	c, err := l.Checkpoint(5, 5)
	if err != nil {
		t.Fatal(err)
	}
	c.Append(entry(1))
	if err := c.Commit(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	fill(t, l, 20, 1)
	closeLog(t, l)
	_, r := mustOpen(t, dir)
	if r.Last != 20 || r.Checkpoint != 0 {
		t.Errorf("%+v", r)
	}
}
