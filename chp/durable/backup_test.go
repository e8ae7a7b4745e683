package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
	"clustermap/internal/testenv"
)

// digest tells entries apart.
func digest(e commit.Entry) string {
	records := e.Records
	e.Records = nil
	return fmt.Sprint(e, len(records), crc32.ChecksumIEEE(records))
}

// replayed returns the entries that a replay of a copy of a log delivers, without the
// indexes.
func replayed(t testing.TB, dir string) (entries []string, r commit.Replayed) {
	t.Helper()
	l, err := Open(copyDir(t, dir), Options{NoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err = l.Replay(func(e commit.Entry) error {
		e.Index = 0
		entries = append(entries, digest(e))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries, r
}

// only fails unless a directory holds just the files with the given names.
func only(t testing.TB, dir string, names ...string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, d := range found {
		have = append(have, d.Name())
	}
	if fmt.Sprint(have) != fmt.Sprint(names) {
		t.Fatalf("%s holds %q, want %q", dir, have, names)
	}
}

func sameEntries(t testing.TB, what string, have, want []string) {
	t.Helper()
	if len(have) != len(want) {
		t.Fatalf("%s: %d entries, want %d", what, len(have), len(want))
	}
	for i := range want {
		if have[i] != want[i] {
			t.Fatalf("%s: entry %d: %.100s, want %.100s", what, i, have[i], want[i])
		}
	}
}

// TestBackup: the entries of a log come back from its backup, whether the log is open,
// closed, or was left with an unfinished write.
func TestBackup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		last, checkpoint uint64
		open, torn       bool
	}{
		{name: "empty"},
		{name: "no checkpoint", last: 120},
		{name: "only a checkpoint", last: 60, checkpoint: 60},
		{name: "both", last: 130, checkpoint: 57},
		{name: "torn", last: 130, checkpoint: 57, torn: true},
		{name: "open", last: 130, checkpoint: 57, open: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, out := t.TempDir(), t.TempDir()
			l, _ := mustOpen(t, dir)
			if err := l.SetEpoch(9); err != nil {
				t.Fatal(err)
			}
			fill(t, l, c.last, 3)
			flush(t, l)
			if c.checkpoint > 0 {
				writeCheckpoint(t, l, c.checkpoint, 20)
			}
			want, _ := replayed(t, dir)
			if c.torn {
				fill(t, l, c.last+1, 1)
				l.lock.Close()
				if err := l.w.Flush(); err != nil {
					t.Fatal(err)
				}
				l.w.Close()
				l.closed = true
				offsets, files := ends(t, dir)
				if err := os.Truncate(files[l.last], offsets[l.last]-20); err != nil {
					t.Fatal(err)
				}
			} else if !c.open {
				closeLog(t, l)
			}
			before := fingerprint(t, dir)
			file := filepath.Join(out, "map.backup")
			info, err := Backup(context.Background(), dir, file)
			if err != nil {
				t.Fatal(err)
			}
			only(t, out, "map.backup")
			if !equal(fingerprint(t, dir), before) {
				t.Error("the backup has changed the log")
			}
			if info.Last != c.last || info.Checkpoint != c.checkpoint || info.Epoch != 9 || info.Identity != l.Meta().Identity {
				t.Errorf("%+v", info)
			}
			n := uint64(0)
			again, err := ReadBackup(file, func(e commit.Entry) error {
				if n++; e.Index == c.checkpoint {
					return nil
				}
				return same(e)
			})
			if err != nil || n != info.Entries || n != uint64(len(want)) {
				t.Fatal(n, err)
			}
			again.Time, info.Time = time.Time{}, time.Time{}
			if again != info {
				t.Errorf("read %+v, written %+v", again, info)
			}

			to := filepath.Join(out, "new", "data")
			info, err = Restore(context.Background(), file, to)
			if err != nil || info.Entries != n {
				t.Fatal(info, err)
			}
			have, r := replayed(t, to)
			sameEntries(t, "restored", have, want)
			if c.checkpoint > 0 && r.Sequence != c.checkpoint*1000 || r.Torn != nil || r.Committed != r.Last {
				t.Errorf("%+v", r)
			}
			report, err := Check(to, nil)
			if err != nil || report.Defect != nil || report.Meta.Epoch != 9 || report.Meta.Identity == info.Identity {
				t.Errorf("%v\n%v", err, report)
			}
			only(t, to, func() []string {
				if c.checkpoint > 0 {
					return []string{format.CheckpointName(1), format.EndName, format.LockName, format.LogName, format.MetaName}
				}
				return []string{format.EndName, format.LockName, format.LogName, format.MetaName}
			}()...)
			// The log goes on, and a backup of it holds the same and more.
			l2, err := Open(to, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer l2.Close()
			if _, err := l2.Replay(func(commit.Entry) error { return nil }); err != nil {
				t.Fatal(err)
			}
			e := entry(l2.Last() + 1)
			if err := l2.Append(e); err != nil {
				t.Fatal(err)
			}
			info, err = Backup(context.Background(), to, file)
			if err != nil || info.Entries != n+1 || info.Sequence != max(c.checkpoint*1000, e.First+uint64(e.Count)-1) && c.last == 0 {
				t.Error(info, err)
			}
		})
	}
}

// TestBackupBesideWriter makes backups of a log that a process appends to and
// makes checkpoints of. Each holds at least the entries that were flushed before it
// began, without a gap.
func TestBackupBesideWriter(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), t.TempDir()
	l, _ := mustOpen(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	g := commit.NewGroup(l, commit.GroupOptions{Policy: commit.Always(), Bytes: 100 << 10})
	var writer sync.WaitGroup
	writer.Go(func() {
		for index := uint64(1); ctx.Err() == nil; index++ {
			if _, err := g.Append(context.Background(), entry(index)); err != nil {
				t.Error(err)
				return
			}
			if index%200 == 0 {
				if err := g.Flush(context.Background()); err != nil {
					t.Error(err)
					return
				}
				c, err := l.Checkpoint(index-50, index*1000)
				if err == nil {
					err = errors.Join(c.Append(entry(1)), c.Commit())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i := range 20 {
		durable := g.Durable()
		file := filepath.Join(out, fmt.Sprint(i))
		info, err := Backup(ctx, dir, file)
		if err != nil {
			t.Error(i, err)
			break
		}
		if info.Last < durable {
			t.Errorf("backup %d: up to entry %d, %d was flushed before", i, info.Last, durable)
		}
		_, err = ReadBackup(file, func(e commit.Entry) error {
			if e.Index == info.Checkpoint {
				return nil
			}
			return same(e)
		})
		if err != nil {
			t.Error(i, err)
		}
		if report, err := Check(dir, nil); err != nil || report.Defect != nil || report.Last < info.Last {
			t.Errorf("check %d: %v\n%v", i, err, report)
		}
	}
	cancel()
	writer.Wait()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestBackupFlushes: the content of a backup is on the disk before the backup has its
// name.
func TestBackupFlushes(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 100, 3) // not flushed
	path := filepath.Join(out, "b")
	var flushed []string
	d := file.Real
	d.Data = func(f *os.File) error {
		if _, err := os.Stat(path); err == nil {
			t.Error("flushed too late:", f.Name())
		}
		flushed = append(flushed, filepath.Base(f.Name()))
		return file.Real.Data(f)
	}
	d.Dir = func(d *os.File) error {
		flushed = append(flushed, d.Name())
		return file.Real.Dir(d)
	}
	if _, err := backup(context.Background(), dir, path, d); err != nil {
		t.Fatal(err)
	}
	all, _ := segment.List(filepath.Join(dir, format.LogName))
	if len(flushed) != len(all)+2 || flushed[len(all)-1] != filepath.Base(all[len(all)-1].Path) ||
		!strings.HasPrefix(flushed[len(all)], "b.") || flushed[len(all)+1] != out {
		t.Error(flushed)
	}
}

// TestBackupStopped: an unfinished backup leaves the earlier file, and no other file if
// it can still remove it.
func TestBackupStopped(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 50, 3)
	flush(t, l)
	closeLog(t, l)
	path := filepath.Join(out, "b")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	unchanged := func() {
		t.Helper()
		if b, err := os.ReadFile(path); string(b) != "before" {
			t.Errorf("%q %v", b, err)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Backup(gone, dir, path); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	unchanged()
	only(t, out, "b")
	broken := errors.New("broken")
	d := file.Real
	calls := 0
	d.Data = func(f *os.File) error {
		calls++
		unchanged() // a process that is killed here leaves it
		if strings.HasSuffix(f.Name(), ".tmp") {
			return broken
		}
		return nil
	}
	if _, err := backup(context.Background(), dir, path, d); !errors.Is(err, broken) || calls < 2 {
		t.Error(err, calls)
	}
	unchanged()
	only(t, out, "b")
	if _, err := Backup(context.Background(), filepath.Join(dir, "none"), path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Backup(context.Background(), out, path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "there is no log") {
		t.Error(err)
	}
	if _, err := Backup(context.Background(), dir, out); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
	if _, err := Backup(context.Background(), dir, filepath.Join(out, "none", "b")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	unchanged()
	only(t, out, "b")
}

// TestBackupOfDamage: there is no backup of a damaged log.
func TestBackupOfDamage(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 100, 1)
	flush(t, l)
	closeLog(t, l)
	all, _ := segment.List(filepath.Join(dir, format.LogName))
	b, _ := os.ReadFile(all[1].Path)
	b[20_000] ^= 1
	if err := os.WriteFile(all[1].Path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := Check(dir, nil)
	if err != nil || isCorrupt(report.Defect) == nil {
		t.Fatalf("%v\n%v", err, report)
	}
	_, err = Backup(context.Background(), dir, filepath.Join(out, "b"))
	if c := isCorrupt(err); c == nil || c.LastGood != report.Last || c.File != all[1].Path {
		t.Error(err)
	}
	only(t, out)

	os.Remove(filepath.Join(dir, format.MetaName))
	if report, err := Check(dir, nil); err != nil || isCorrupt(report.Defect) == nil {
		t.Errorf("Check without metadata: %v\n%v", err, report)
	}
	if _, err := Backup(context.Background(), dir, filepath.Join(out, "b")); isCorrupt(err) == nil {
		t.Error("without metadata:", err)
	}
	only(t, out)
}

// smallBackup makes a backup of a few entries.
func smallBackup(t testing.TB) (file string, want []string) {
	t.Helper()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 20, 1)
	writeCheckpoint(t, l, 18, 3)
	closeLog(t, l)
	file = filepath.Join(t.TempDir(), "b")
	if _, err := Backup(context.Background(), dir, file); err != nil {
		t.Fatal(err)
	}
	want, _ = replayed(t, dir)
	return file, want
}

// TestDamagedBackup: a changed byte, or a missing end, is found, and nothing is
// restored. What does not begin like a backup is not called damaged.
func TestDamagedBackup(t *testing.T) {
	t.Parallel()
	file, _ := smallBackup(t)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	bad := filepath.Join(t.TempDir(), "b")
	try := func(what string, content []byte, restore bool) {
		t.Helper()
		if err := os.WriteFile(bad, content, 0o600); err != nil {
			t.Fatal(err)
		}
		known := func(err error) bool {
			if len(content) < 8 || string(content[:8]) != string(good[:8]) {
				return errors.Is(err, ErrNotBackup) && isCorrupt(err) == nil && strings.Contains(err.Error(), bad+" is not a backup")
			}
			return isCorrupt(err) != nil || errors.Is(err, commit.ErrFormat)
		}
		if _, err := ReadBackup(bad, func(commit.Entry) error { return nil }); !known(err) {
			t.Fatalf("%s: read: %v", what, err)
		}
		if restore {
			if _, err := Restore(context.Background(), bad, filepath.Join(out, "new")); !known(err) {
				t.Fatalf("%s: restored: %v", what, err)
			}
			only(t, out)
		}
	}
	for i := range good {
		if i > 300 && i < len(good)-60 && i%53 != 0 {
			continue
		}
		b := bytes.Clone(good)
		b[i] ^= 0x40
		try(fmt.Sprintf("byte %d changed", i), b, i%200 == 0)
		try(fmt.Sprintf("%d bytes", i), good[:i], i%200 == 0 || i == len(good)-1)
	}
	try("too long", append(bytes.Clone(good), 0), true)
	try("another file", []byte("no backup at all, but longer than the header of one would be: much, much longer, I should think"), true)
}

// TestBackupBehindALink: where the name of a backup is a symbolic link, the link stays, and
// the file that it leads to is made or replaced.
func TestBackupBehindALink(t *testing.T) {
	t.Parallel()
	dir, disk := t.TempDir(), t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 20, 1)
	closeLog(t, l)
	link, target := filepath.Join(t.TempDir(), "latest"), filepath.Join(disk, "today")
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err) // Windows allows it to administrators only
	}
	for _, exists := range []bool{false, true} {
		info, err := Backup(context.Background(), dir, link)
		if err != nil || info.File != link {
			t.Errorf("exists %v: %+v, %v", exists, info, err)
		}
		if st, err := os.Lstat(link); err != nil || st.Mode().Type() != os.ModeSymlink {
			t.Errorf("exists %v: the link is %v, %v", exists, st.Mode(), err)
		}
		for _, file := range []string{link, target} {
			if b, err := ReadBackup(file, func(commit.Entry) error { return nil }); err != nil || b.Last != 20 {
				t.Errorf("exists %v: %s: %+v, %v", exists, file, b, err)
			}
		}
		only(t, disk, "today")
	}
	// A circle of links is an error, and stays.
	testenv.Must(t, os.Remove(target))
	testenv.Must(t, os.Symlink(link, target))
	if _, err := Backup(context.Background(), dir, link); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("in a circle: %v", err)
	}
}

// TestRestoreRefuses: a directory with a log stays as it is.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	file, want := smallBackup(t)
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	if _, err := Restore(context.Background(), file, dir); !errors.Is(err, commit.ErrLocked) {
		t.Error("into an open log:", err)
	}
	fill(t, l, 3, 1)
	closeLog(t, l)
	before := fingerprint(t, dir)
	if _, err := Restore(context.Background(), file, dir); !errors.Is(err, os.ErrExist) {
		t.Error("into a log:", err)
	}
	if !equal(fingerprint(t, dir), before) {
		t.Error("the log has changed")
	}
	os.Remove(filepath.Join(dir, format.MetaName))
	before = fingerprint(t, dir)
	if _, err := Restore(context.Background(), file, dir); !errors.Is(err, os.ErrExist) {
		t.Error("into a log without metadata:", err)
	}
	if !equal(fingerprint(t, dir), before) {
		t.Error("the log has changed")
	}

	// Other files do not matter.
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Restore(gone, file, dir); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	only(t, dir, format.LockName, "other")
	if _, err := Restore(context.Background(), file, dir); err != nil {
		t.Error(err)
	}
	have, _ := replayed(t, dir)
	sameEntries(t, "restored", have, want)
}

// TestRestoreKilled stops a restore before and after each of its flushes. The directory
// then has no log, and says so, or the whole one; and a restore can be made anew.
func TestRestoreKilled(t *testing.T) {
	t.Parallel()
	path, want := smallBackup(t)
	dir := filepath.Join(t.TempDir(), "data")
	var images []string
	keep := func() {
		if _, err := os.Stat(dir); err == nil {
			images = append(images, copyDir(t, dir))
		}
	}
	d := file.Disk{
		Data: func(f *os.File) error { keep(); err := file.Real.Data(f); keep(); return err },
		Dir:  func(f *os.File) error { keep(); err := file.Real.Dir(f); keep(); return err },
	}
	if _, err := restore(context.Background(), path, dir, d); err != nil {
		t.Fatal(err)
	}
	complete := 0
	for i, image := range images {
		l, err := Open(image, Options{})
		if err == nil {
			l.Close()
			complete++
		} else if !errors.Is(err, errUnfinished) {
			t.Errorf("image %d of %d: %v", i, len(images), err)
			continue
		} else if _, err := Restore(context.Background(), path, image); err != nil {
			t.Errorf("image %d of %d, a second restore: %v", i, len(images), err)
			continue
		}
		have, _ := replayed(t, image)
		sameEntries(t, fmt.Sprintf("image %d of %d", i, len(images)), have, want)
	}
	if len(images) < 20 || complete == 0 || complete == len(images) {
		t.Errorf("%d images, %d of them complete", len(images), complete)
	}
}

// TestNewBackup: a backup of a state that does not come from a log.
func TestNewBackup(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	file := filepath.Join(out, "b")
	b, err := NewBackup(file, 4, 77)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abort()
	for i := range uint64(10) {
		if err := b.Append(entry(100 + i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error("the file has its name before Commit:", err)
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := b.Append(entry(1)); !errors.Is(err, commit.ErrClosed) {
		t.Error(err)
	}
	if i := b.Info(); i.Entries != 10 || i.Sequence != 77 || i.Epoch != 4 {
		t.Errorf("%+v", i)
	}
	dir := filepath.Join(out, "data")
	if _, err := Restore(context.Background(), file, dir); err != nil {
		t.Fatal(err)
	}
	have, r := replayed(t, dir)
	var want []string
	for i := range uint64(10) {
		e := entry(100 + i)
		e.Index = 0
		want = append(want, digest(e))
	}
	sameEntries(t, "restored", have, want)
	if r.Sequence != 77 || r.Checkpoint != 1 || r.Last != 1 {
		t.Errorf("%+v", r)
	}

	b, err = NewBackup(file, 4, 77)
	if err != nil {
		t.Fatal(err)
	}
	b.Append(entry(1))
	b.Abort()
	b.Abort()
	only(t, out, "b", "data")
	if _, err := NewBackup(dir, 0, 0); err == nil {
		t.Error("a backup in the place of a directory")
	}
}
