package durable

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
	"clustermap/internal/testenv"
)

// Sizes in the files, which stay as they are: of the head of a checkpoint or a backup, and of
// a mark; and where the second mark is.
const (
	archiveHeader = 64
	markBytes     = 64
	markSlot      = 512
)

// setVersion changes the format of a file of ours; n is the size of what the checksum at its
// end covers.
func setVersion(t *testing.T, path string, version uint32, n int) {
	t.Helper()
	b, err := os.ReadFile(path)
	testenv.Must(t, err)
	binary.BigEndian.PutUint32(b[8:], version)
	binary.BigEndian.PutUint32(b[n:], crc32.Checksum(b[:n], crc32.MakeTable(crc32.Castagnoli)))
	testenv.Must(t, os.WriteFile(path, b, 0o600))
}

// TestNewerFormat: what a newer version has written is refused as such and stays as it is:
// each kind of file, by each function that reads it. It is not damage.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 20, 2)
	writeCheckpoint(t, l, 10, 3)
	meta := l.meta
	closeLog(t, l)
	open := func(dir string) error {
		l, _, err := tryOpen(dir, file.Real)
		if err == nil {
			closeLog(t, l)
		}
		return err
	}
	check := func(dir string) error {
		r, err := Check(dir, nil)
		testenv.Must(t, err)
		return r.Defect
	}
	backup := func(dir string) error {
		_, err := Backup(context.Background(), dir, filepath.Join(t.TempDir(), "b"))
		return err
	}
	logs := map[string]func(dir string) error{"open": open, "check": check, "backup": backup}
	refused := func(t *testing.T, path, text string, readers map[string]func(string) error) {
		t.Helper()
		var before map[string]string
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			before = fingerprint(t, path)
		}
		for name, read := range readers {
			err := read(path)
			var newer *commit.FormatError
			if !errors.Is(err, commit.ErrFormat) || !errors.As(err, &newer) || isCorrupt(err) != nil || newer.Version != 7 || newer.Newest != format.Version ||
				!strings.Contains(err.Error(), text+" was written by a newer version (format 7; this program reads up to 1)") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if before != nil && !equal(before, fingerprint(t, path)) {
			t.Error("it was changed")
		}
	}

	for name, n := range map[string]int{format.MetaName: format.MetaBytes - 4, format.CheckpointName(10): archiveHeader - 4, format.EndName: markBytes - 4} {
		work := copyDir(t, dir)
		setVersion(t, filepath.Join(work, name), 7, n)
		refused(t, work, name, logs)
		if name == format.EndName {
			continue // a mark that says nothing
		}
		// No version is 0.
		setVersion(t, filepath.Join(work, name), 0, n)
		for reader, read := range logs {
			if err := read(work); isCorrupt(err) == nil || errors.Is(err, commit.ErrFormat) {
				t.Errorf("%s of format 0: %s: %v", name, reader, err)
			}
		}
	}

	// A segment.
	work := copyDir(t, dir)
	testenv.Must(t, os.Remove(filepath.Join(work, format.CheckpointName(10))))
	testenv.Must(t, os.RemoveAll(filepath.Join(work, format.EndName)))
	testenv.Must(t, os.RemoveAll(filepath.Join(work, format.LogName)))
	meta.Format = 7
	w, err := wal.Create(zap.NewNop(), filepath.Join(work, format.LogName), segment.Metadata(&meta))
	testenv.Must(t, err)
	testenv.Must(t, w.Close())
	refused(t, work, ".wal", logs)

	// A backup.
	file := filepath.Join(t.TempDir(), "backup")
	_, err = Backup(t.Context(), dir, file)
	testenv.Must(t, err)
	setVersion(t, file, 7, archiveHeader-4)
	to := filepath.Join(t.TempDir(), "to")
	refused(t, file, "backup", map[string]func(string) error{
		"read": func(file string) error {
			_, err := ReadBackup(file, func(commit.Entry) error { return nil })
			return err
		},
		"restore": func(file string) error {
			_, err := Restore(context.Background(), file, to)
			return err
		},
	})
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		t.Error("restored:", err)
	}
}

// TestChangedFormatIsDamage: a changed bit of a format is damage, not a newer version.
func TestChangedFormatIsDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 20, 2)
	writeCheckpoint(t, l, 10, 3)
	closeLog(t, l)
	file := filepath.Join(t.TempDir(), "backup")
	_, err := Backup(t.Context(), dir, file)
	testenv.Must(t, err)
	for name, read := range map[string]func(path string) error{
		filepath.Join(dir, format.MetaName): func(path string) error {
			_, err := format.ReadMeta(filepath.Dir(path))
			return err
		},
		filepath.Join(dir, format.CheckpointName(10)): func(path string) error {
			return readCheckpoint(path, l.meta.Identity, func(commit.Entry) error { return nil })
		},
		file: func(path string) error {
			_, err := ReadBackup(path, func(commit.Entry) error { return nil })
			return err
		},
	} {
		b, err := os.ReadFile(name)
		testenv.Must(t, err)
		for bit := range 32 {
			b[8+bit/8] ^= 1 << (bit % 8)
			testenv.Must(t, os.WriteFile(name, b, 0o600))
			if err := read(name); isCorrupt(err) == nil || errors.Is(err, commit.ErrFormat) {
				t.Errorf("bit %d of the format of %s: %v", bit, filepath.Base(name), err)
			}
			b[8+bit/8] ^= 1 << (bit % 8)
		}
		testenv.Must(t, os.WriteFile(name, b, 0o600))
	}
}

// TestCheckOfContent: what the function of Check says about the content of an entry is a
// defect, with the place of the entry, and the same that Replay says.
func TestCheckOfContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 20, 2)
	closeLog(t, l)
	offsets, files := ends(t, dir)
	bad := errors.New("bad content")
	say := func(err func() error) func(commit.Entry) error {
		return func(e commit.Entry) error {
			if e.Index == 7 {
				return err()
			}
			return nil
		}
	}
	for _, what := range []func() error{
		func() error { return &commit.CorruptError{Reason: bad} },
		func() error { return &commit.FormatError{What: "entry 7", Unit: "entry kind", Version: 9, Newest: 4} },
	} {
		r, err := Check(dir, say(what))
		if err != nil || r.Defect == nil || r.Last != 6 {
			t.Fatal(err, r)
		}
		l, err := Open(dir, Options{})
		testenv.Must(t, err)
		_, err = l.Replay(say(what))
		testenv.Must(t, l.Close())
		if err == nil || !strings.HasSuffix(err.Error(), r.Defect.Error()) {
			t.Errorf("Replay says %v, Check %v", err, r.Defect)
		}
		if c := isCorrupt(r.Defect); c != nil && (c.File != files[7] || c.Offset != offsets[6] || c.LastGood != 6 || !errors.Is(c, bad)) {
			t.Errorf("%+v", c)
		}
	}
	if _, err := Check(dir, say(func() error { return bad })); !errors.Is(err, bad) {
		t.Error(err)
	}
}
