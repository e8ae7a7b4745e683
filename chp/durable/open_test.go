package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
	"clustermap/internal/testenv"
)

// TestMissingMeta: entries without metadata are not thrown away as an
// interrupted creation.
func TestMissingMeta(t *testing.T) {
	t.Parallel()
	for _, end := range []bool{true, false} {
		dir := t.TempDir()
		l, _ := mustOpen(t, dir)
		fill(t, l, 1, 1)
		closeLog(t, l)
		os.Remove(filepath.Join(dir, format.MetaName))
		if !end { // as a program left it that did not know the file
			os.Remove(filepath.Join(dir, format.EndName))
		}
		if _, err := Open(dir, Options{}); isCorrupt(err) == nil {
			t.Error("opened:", err)
		}
	}
}

// TestInterruptedCreationIsNoLog: what a first start leaves that was interrupted is no damage,
// and for Check, Backup and Restore no log either, as for the next start.
func TestInterruptedCreationIsNoLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	closeLog(t, l)
	testenv.Must(t, errors.Join(os.Remove(filepath.Join(dir, format.MetaName)), os.Remove(filepath.Join(dir, format.EndName))))
	if report, err := Check(dir, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Check: %v\n%v", err, report)
	}
	if _, err := Backup(t.Context(), dir, filepath.Join(t.TempDir(), "backup")); !errors.Is(err, os.ErrNotExist) {
		t.Error("Backup:", err)
	}
	l, _ = mustOpen(t, dir)
	fill(t, l, 3, 1)
	closeLog(t, l)
}

// TestForeignFilesStay: a log removes and replaces only files of logs.
func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(names ...string) {
		for _, name := range names {
			path := filepath.Join(dir, name)
			testenv.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("mine"), 0o600)))
		}
	}
	write("notes.tmp", "some.tmp/notes", "map.backup.17.tmp", "log.tmp/app.log")
	for range 2 {
		l, _ := mustOpen(t, dir)
		closeLog(t, l)
	}
	for _, name := range []string{"notes.tmp", "some.tmp/notes", "map.backup.17.tmp", "log.tmp/app.log"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"log/app.log", "log/old.tmp/app.log", "end"} {
		dir = t.TempDir()
		write(name)
		print := fingerprint(t, dir)
		if l, err := Open(dir, Options{}); err == nil {
			l.Close()
			t.Errorf("a log was created beside %s", name)
		}
		if report, err := Check(dir, nil); err == nil && report.Defect == nil {
			t.Errorf("Check finds a log beside %s", name)
		}
		if !equal(print, fingerprint(t, dir)) {
			t.Errorf("%s: %v", name, fingerprint(t, dir))
		}
	}
}

// TestSegmentsBehindALink: the directory of the segments can be a link, also to a directory
// where an interrupted creation has left something.
func TestSegmentsBehindALink(t *testing.T) {
	t.Parallel()
	dir, behind := t.TempDir(), t.TempDir()
	testenv.Must(t, os.WriteFile(filepath.Join(behind, "next.tmp"), []byte("left"), 0o600))
	if err := os.Symlink(behind, filepath.Join(dir, format.LogName)); err != nil {
		t.Skip(err) // Windows allows it to administrators only
	}
	l, _ := mustOpen(t, dir)
	fill(t, l, 200, 10)
	closeLog(t, l)
	if found, err := segment.List(behind); err != nil || len(found) < 2 {
		t.Errorf("%d segments behind the link, %v", len(found), err)
	}
	l, r := mustOpen(t, dir)
	if r.Last != 200 {
		t.Errorf("%+v", r)
	}
	closeLog(t, l)
}
