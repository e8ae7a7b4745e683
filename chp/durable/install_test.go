package durable

import (
	"errors"
	"os"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
)

// tryInstall installs a checkpoint with one entry.
func tryInstall(t testing.TB, l *Log, index uint64) error {
	t.Helper()
	c, err := l.Install(index, index)
	if err != nil {
		return err
	}
	defer c.Abort()
	e := entry(index)
	if err := c.Append(e); err != nil {
		t.Fatal(err)
	}
	return c.Commit()
}

// TestInstallReplacesTheLog shows that a log goes on behind an installed checkpoint, whether that is
// behind its end or not, and that it is found again.
func TestInstallReplacesTheLog(t *testing.T) {
	t.Parallel()
	for _, index := range []uint64{1000, 31, 30, 12} {
		dir := t.TempDir()
		l, _ := mustOpen(t, dir)
		fill(t, l, 30, 7)
		flush(t, l)
		if err := tryInstall(t, l, index); err != nil {
			t.Fatal(err)
		}
		if l.First() != index+1 || l.Last() != index || l.Synced() != index {
			t.Fatalf("at %d: entries %d to %d, flushed up to %d", index, l.First(), l.Last(), l.Synced())
		}
		n := 0
		if err := l.State(func(e commit.Entry) error { n++; return same(e) }); err != nil || n != 1 {
			t.Fatalf("%d entries in the state, %v", n, err)
		}
		if err := tryInstall(t, l, index); !errors.Is(err, commit.ErrOrder) {
			t.Fatalf("the same again: %v", err)
		}
		fill(t, l, index+20, 3)
		flush(t, l)
		if err := l.CutBack(index + 10); err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
		l, r := mustOpen(t, dir)
		if r.Checkpoint != index || r.Last != index+10 {
			t.Fatalf("found checkpoint %d and entries up to %d", r.Checkpoint, r.Last)
		}
		readAll(t, l, index+1)
		if report, err := Check(dir, nil); err != nil {
			t.Errorf("check: %+v, %v", report, err)
		}
	}
}

// TestInstallInterrupted shows that a process can be killed anywhere in an installation: it leaves
// either the old log, or less of it, or the new one, and both go on.
func TestInstallInterrupted(t *testing.T) {
	t.Parallel()
	for _, index := range []uint64{1000, 12} {
		dir := t.TempDir()
		var states []string
		watch := false
		snap := func() {
			if watch {
				states = append(states, copyDir(t, dir))
			}
		}
		l, _, err := tryOpen(dir, file.Disk{
			Data: func(f *os.File) error { snap(); return file.Real.Data(f) },
			Dir:  func(f *os.File) error { snap(); return file.Real.Dir(f) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		fill(t, l, 30, 7)
		flush(t, l)
		watch = true
		if err := tryInstall(t, l, index); err != nil {
			t.Fatal(err)
		}
		watch = false
		states = append(states, copyDir(t, dir))
		before, after := 0, 0
		for i, dir := range states {
			l, r := mustOpen(t, dir)
			switch {
			case r.Checkpoint == 0 && r.Last <= 30 && r.Last >= min(index-1, 30):
				before++
			case r.Checkpoint == index && r.Last == index:
				after++
			default:
				t.Errorf("state %d: checkpoint %d, entries up to %d", i, r.Checkpoint, r.Last)
			}
			fill(t, l, r.Last+5, 2)
			flush(t, l)
			last := l.Last()
			closeLog(t, l)
			if _, again := mustOpen(t, dir); again.Last != last || again.Checkpoint != r.Checkpoint {
				t.Errorf("state %d, opened again: checkpoint %d, entries up to %d", i, again.Checkpoint, again.Last)
			}
			os.RemoveAll(dir)
		}
		if before == 0 || after < 3 {
			t.Errorf("%d states before and %d after", before, after)
		}
	}
}
