package durable

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
)

// ends returns for each entry of a log where it ends in its segment, and that segment.
func ends(t *testing.T, dir string) (map[uint64]int64, map[uint64]string) {
	t.Helper()
	all, err := segment.List(filepath.Join(dir, format.LogName))
	if err != nil {
		t.Fatal(err)
	}
	m, err := format.ReadMeta(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := segment.Walk{Segments: all, Meta: &m}
	offsets, files := map[uint64]int64{}, map[uint64]string{}
	err = w.Run(func(e commit.Entry, end int64) error {
		offsets[e.Index], files[e.Index] = end, all[w.At].Path
		return nil
	})
	if err != nil || w.Reason != nil {
		t.Fatal(err, w.Reason)
	}
	return offsets, files
}

// fingerprint is the content of a directory.
func fingerprint(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == format.LockName || d.Name() == "next.tmp" { // the latter is allocated meanwhile
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// TestTornTail tears the last three entries at every byte: the file ends there,
// or zeros or garbage follow. The entries before the tear are read, the rest is cut off,
// and the log goes on.
func TestTornTail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 26, 2)
	flush(t, l)
	fill(t, l, 29, 3) // all of them are small
	l.mu.Lock()
	l.synced = l.last // so that Close does not say that they were flushed
	l.committed = 0
	l.mu.Unlock()
	closeLog(t, l)
	offsets, files := ends(t, dir)
	path := files[29]
	if files[26] != path {
		t.Fatal("the entries are not in one segment")
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mark, err := os.ReadFile(filepath.Join(dir, format.EndName))
	if err != nil {
		t.Fatal(err)
	}
	end := offsets[29] + 64 // with the record behind the entries
	garbage := content(1, int(end))
	for name, tear := range map[string]func(p int64) []byte{
		"ends":    func(p int64) []byte { return good[:p] },
		"zeros":   func(p int64) []byte { return append(bytes.Clone(good[:p]), make([]byte, len(good)-int(p))...) },
		"garbage": func(p int64) []byte { return append(append(bytes.Clone(good[:p]), garbage[p:]...), good[end:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyDir(t, dir)
			path := filepath.Join(dir, format.LogName, filepath.Base(path))
			for p := offsets[26]; p < end; p++ {
				want := uint64(26)
				for i := want; i <= 29; i++ {
					if offsets[i] <= p {
						want = i
					}
				}
				err := errors.Join(os.WriteFile(path, tear(p), 0o600), os.WriteFile(filepath.Join(dir, format.EndName), mark, 0o600))
				if err != nil {
					t.Fatal(err)
				}
				report, err := Check(dir, nil)
				if err != nil || report.Defect != nil {
					t.Fatalf("torn at %d: %v %v", p, err, report)
				}
				// Padding may be torn off without harm.
				if report.Last != want && (report.Last != want+1 || offsets[want+1]-p > 8) {
					t.Fatalf("torn at %d: last %d, want %d", p, report.Last, want)
				}
				if p%11 != 0 {
					continue
				}
				l, r, err := tryOpen(dir, file.Real)
				if err != nil {
					t.Fatalf("torn at %d: %v", p, err)
				}
				if r.Last != report.Last || (r.Torn == nil) != (report.Torn == nil) {
					t.Fatalf("torn at %d: Open says %+v, Check %+v", p, r, report)
				}
				if r.Torn != nil && (r.Torn.After != r.Last || r.Torn.Bytes <= 0 || r.Torn.Offset > p+8) {
					t.Fatalf("torn at %d: %v", p, r.Torn)
				}
				if p%33 == 0 {
					fill(t, l, 35, 1)
					closeLog(t, l)
					if l, r, err = tryOpen(dir, file.Real); err != nil || r.Last != 35 || r.Torn != nil {
						t.Fatalf("torn at %d, repaired, more: %+v %v", p, r, err)
					}
				}
				closeLog(t, l)
			}
		})
	}
}

// TestCorruptMiddle damages an entry that was flushed, with a later record of the flush.
// The log does not open, tells where, and is not changed.
func TestCorruptMiddle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 80, 2)
	flush(t, l)
	fill(t, l, 90, 2)
	closeLog(t, l)
	offsets, files := ends(t, dir)
	if files[1] == files[80] || files[80] != files[90] {
		t.Fatal("not the segments that this test wants")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 150 {
		dir := copyDir(t, dir)
		index := 2 + r.Uint64N(79) // an entry of 2 to 80
		path := filepath.Join(dir, format.LogName, filepath.Base(files[index]))
		start := int64(0)
		if files[index] == files[index-1] {
			start = offsets[index-1]
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := start + r.Int64N(offsets[index]-start)
		switch round % 4 {
		case 0: // a bit
			b[at] ^= 1 << r.IntN(8)
		case 1: // a sector is lost
			at -= at % 512
			clear(b[at:min(at+512, offsets[index])])
		case 2: // garbage
			copy(b[at:min(at+100, offsets[index])], content(5, 100))
		case 3: // the rest of the segment is lost
			if files[index] == files[90] {
				continue // nothing is left that could tell
			}
			b = b[:at]
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		before := fingerprint(t, dir)
		l, _, err := tryOpen(dir, file.Real)
		if err == nil {
			// Padding is not covered by checksums: all entries were right.
			if l.Last() != 90 {
				t.Fatalf("round %d: damage at %d of %s: last entry %d", round, at, path, l.Last())
			}
			l.Close()
			continue
		}
		c := isCorrupt(err)
		if c == nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if c.LastGood >= index || c.Lost < 80 || c.Offset > at+8 && c.File == path {
			t.Fatalf("round %d: entry %d damaged at %d of %s: %v", round, index, at, path, err)
		}
		report, err := Check(dir, nil)
		if d := isCorrupt(report.Defect); err != nil || d == nil || d.LastGood != c.LastGood || d.Offset != c.Offset || d.File != c.File || report.Last != c.LastGood {
			t.Fatalf("round %d: Check says %v, %v, Open %v", round, err, report, c)
		}
		if !equal(before, fingerprint(t, dir)) {
			t.Fatalf("round %d: the log was changed", round)
		}
	}

	// A segment is missing.
	all, _ := segment.List(filepath.Join(dir, format.LogName))
	for i := range all[:len(all)-1] {
		dir := copyDir(t, dir)
		os.Remove(filepath.Join(dir, format.LogName, filepath.Base(all[i].Path)))
		if _, _, err := tryOpen(dir, file.Real); isCorrupt(err) == nil {
			t.Errorf("segment %d of %d missing: %v", i, len(all), err)
		}
	}
	os.RemoveAll(filepath.Join(dir, format.LogName))
	if _, _, err := tryOpen(dir, file.Real); isCorrupt(err) == nil {
		t.Errorf("all segments missing: %v", err)
	}
}

// TestTornAcrossSegments: a write that was not flushed and filled several
// segments is torn in the first of them.
func TestTornAcrossSegments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 20, 2)
	flush(t, l)
	fill(t, l, 150, 5)
	offsets, files := ends(t, dir)
	torn := copyDir(t, dir)
	path := filepath.Join(torn, format.LogName, filepath.Base(files[25]))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[offsets[25]+100 : offsets[25]+612])
	os.WriteFile(path, b, 0o600)
	l2, r := mustOpen(t, torn)
	if r.Last != 25 || r.Torn == nil || r.Torn.Bytes < 100_000 {
		t.Fatalf("%+v", r)
	}
	fill(t, l2, 200, 5)
	closeLog(t, l2)
	if _, r := mustOpen(t, torn); r.Last != 200 || r.Torn != nil {
		t.Fatalf("%+v", r)
	}
}

// TestOfAnotherServer: segments and checkpoints of two logs are not mixed.
func TestOfAnotherServer(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b} {
		l, _ := mustOpen(t, dir)
		fill(t, l, 3, 1)
		writeCheckpoint(t, l, 2, 1)
		closeLog(t, l)
	}
	checkpoint := format.CheckpointName(2)
	if err := os.Rename(filepath.Join(a, checkpoint), filepath.Join(b, checkpoint)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tryOpen(b, file.Real); isCorrupt(err) == nil {
		t.Error("checkpoint of another server:", err)
	}
	os.Remove(filepath.Join(b, checkpoint))
	os.RemoveAll(filepath.Join(b, format.LogName))
	if err := os.Rename(filepath.Join(a, format.LogName), filepath.Join(b, format.LogName)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tryOpen(b, file.Real); isCorrupt(err) == nil {
		t.Error("segments of another server:", err)
	}
	if _, err := os.Stat(filepath.Join(b, format.LogName)); errors.Is(err, os.ErrNotExist) {
		t.Error("they were removed")
	}
}
