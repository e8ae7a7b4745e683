package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
	"clustermap/internal/testenv"
)

// logEnding makes a log whose entries are all flushed, closes it or not, and returns a copy
// of its directory and the number of entries.
func logEnding(t *testing.T, closed bool, checkpoint uint64) (dir string, last uint64) {
	t.Helper()
	dir, last = t.TempDir(), 120
	l, _ := mustOpen(t, dir)
	for i := uint64(20); i <= last; i += 20 {
		fill(t, l, i, 3)
		testenv.Must(t, l.Sync()) // the server commits later, or another one has to have them first
		if i == checkpoint || i == last && checkpoint > i {
			writeCheckpoint(t, l, min(i, checkpoint), 3)
		}
	}
	if closed {
		closeLog(t, l)
	}
	return copyDir(t, dir), last // without Close: as after kill -9
}

// TestShorterLogSaysSo removes a part of a log whose entries were all flushed, at each place
// and in each way. A log with less than all of them does not open, and chp fsck and backups
// say the same; nothing on the disk is changed then.
func TestShorterLogSaysSo(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{true, false} {
		for _, checkpoint := range []uint64{0, 20, 100, 120} {
			if testing.Short() && checkpoint%100 == 20 {
				continue
			}
			t.Run(fmt.Sprintf("closed=%v checkpoint=%d", closed, checkpoint), func(t *testing.T) {
				t.Parallel()
				dir, last := logEnding(t, closed, checkpoint)
				shorten(t, dir, last, checkpoint)
			})
		}
	}
}

// noFlush is a disk for tests that make no crash.
var noFlush = file.Disk{Data: func(*os.File) error { return nil }, Dir: func(*os.File) error { return nil }}

// shorten tries all faults on copies of a log.
func shorten(t *testing.T, dir string, last, checkpoint uint64) {
	all, err := segment.List(filepath.Join(dir, format.LogName))
	if err != nil || checkpoint < 100 && len(all) < 3 {
		t.Fatal(all, err)
	}
	offsets, files := map[uint64]int64{}, map[uint64]string{}
	m, err := format.ReadMeta(dir)
	testenv.Must(t, err)
	w := segment.Walk{Segments: all, Meta: &m}
	heads := map[string]int64{} // where the first entry of a segment begins
	var before int64
	testenv.Must(t, w.Run(func(e commit.Entry, end int64) error {
		path := all[w.At].Path
		offsets[e.Index], files[e.Index] = end, path
		if _, found := heads[path]; !found {
			heads[path] = w.Offset
		}
		before = end
		return nil
	}))
	if w.Reason != nil || before == 0 {
		t.Fatal(w.Reason)
	}
	lost, kept := 0, 0
	// try makes a fault, and checks what is found. all says that no entry is missing.
	try := func(what string, complete bool, fault func(dir string) error) {
		t.Helper()
		work := copyDir(t, dir)
		testenv.Must(t, fault(work))
		print := fingerprint(t, work)
		// Check and Backup, which look twice.
		report := Report{First: 1}
		defect := report.check(work, func(commit.Entry) error { return nil })
		_, backupErr := backup(t.Context(), work, filepath.Join(t.TempDir(), "backup"), noFlush)
		if complete {
			if defect != nil || backupErr != nil {
				t.Errorf("%s: nothing is missing: Check says %v, Backup %v", what, defect, backupErr)
			}
		} else if isCorrupt(defect) == nil || isCorrupt(backupErr) == nil {
			t.Errorf("%s: Check says %v, Backup %v, up to entry %d of %d", what, defect, backupErr, report.Last, last)
		}
		l, r, err := tryOpen(work, noFlush)
		switch {
		case err == nil:
			closeLog(t, l)
			kept++
			if r.Last < last {
				t.Errorf("%s: it opens with %d of %d entries", what, r.Last, last)
			}
		case complete || isCorrupt(err) == nil:
			t.Errorf("%s: %v", what, err)
		default:
			lost++
			if !equal(print, fingerprint(t, work)) {
				t.Errorf("%s: the log was changed", what)
			}
		}
	}
	in := func(path string) func(dir string) string {
		return func(work string) string {
			rel, _ := filepath.Rel(dir, path)
			return filepath.Join(work, rel)
		}
	}
	remove := func(path string) func(string) error {
		return func(work string) error { return os.RemoveAll(in(path)(work)) }
	}

	for i, s := range all {
		// The segments up to the checkpoint are not needed, except for the last one.
		needless := i < len(all)-1 && all[i+1].First() <= checkpoint
		try(fmt.Sprintf("segment %d of %d removed", i, len(all)), needless, remove(s.Path))
		// From where its data can end.
		var places []int64
		for e := uint64(1); e <= last; e++ {
			if files[e] == s.Path {
				places = append(places, offsets[e]-17)
				if e < last && files[e+1] == s.Path {
					places = append(places, offsets[e], offsets[e]+1)
				}
			}
		}
		places = append(places, 0, 8, heads[s.Path]/2, heads[s.Path], heads[s.Path]+1)
		if most := 12; len(places) > most {
			places = places[len(places)-most:]
		}
		for _, at := range places {
			for _, zero := range []bool{false, true} {
				try(fmt.Sprintf("segment %d of %d from %d, zeros %v", i, len(all), at, zero), needless || at < 0, func(work string) error {
					path := in(s.Path)(work)
					b, err := os.ReadFile(path)
					if err != nil || at < 0 {
						return err
					}
					if zero {
						clear(b[at:])
					} else {
						b = b[:at]
					}
					return os.WriteFile(path, b, 0o600)
				})
			}
		}
	}
	if n := len(all); n > 1 && all[n-1].First() > checkpoint {
		try("last two segments removed", false, func(work string) error {
			if err := remove(all[n-1].Path)(work); err != nil {
				return err
			}
			return remove(all[n-2].Path)(work)
		})
	}
	try("all segments removed", false, remove(filepath.Join(dir, format.LogName)))
	try("metadata removed", false, remove(filepath.Join(dir, format.MetaName)))
	try("all but the mark removed", false, func(work string) error {
		err := errors.Join(remove(filepath.Join(dir, format.MetaName))(work), remove(filepath.Join(dir, format.LogName))(work))
		if checkpoint > 0 {
			err = errors.Join(err, remove(filepath.Join(dir, format.CheckpointName(checkpoint)))(work))
		}
		return err
	})
	if checkpoint > 0 {
		try("checkpoint removed", false, remove(filepath.Join(dir, format.CheckpointName(checkpoint))))
	}
	// The mark alone holds no entries.
	end := filepath.Join(dir, format.EndName)
	try("mark removed", true, remove(end))
	try("mark zeroed", true, func(work string) error { return os.Truncate(in(end)(work), 0) })
	for at := 0; at < markBytes; at += 5 {
		try("mark damaged", true, func(work string) error {
			b, err := os.ReadFile(in(end)(work))
			if err == nil {
				b[at] ^= 4
				b[markSlot+at] ^= 4
				err = os.WriteFile(in(end)(work), b, 0o600)
			}
			return err
		})
	}
	if lost < 50 && checkpoint < 100 || lost < 8 || kept < 10 {
		t.Errorf("%d faults were found, %d were harmless: the test has tested too little", lost, kept)
	}
}

// TestUnflushedEndIsNotMissing: what the mark does not say may be missing after a power cut:
// entries that were not flushed.
func TestUnflushedEndIsNotMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 26, 2)
	testenv.Must(t, l.Sync())
	fill(t, l, 120, 2)
	work := copyDir(t, dir)
	offsets, files := ends(t, work)
	path, at := files[26], offsets[26]
	all, err := segment.List(filepath.Join(work, format.LogName))
	testenv.Must(t, err)
	if files[120] == path {
		t.Fatal("the entries are in one segment")
	}
	for _, s := range all {
		if s.Path > path {
			testenv.Must(t, os.Remove(s.Path))
		}
	}
	testenv.Must(t, os.Truncate(path, at))
	report, err := Check(work, nil)
	if err != nil || report.Defect != nil || report.Last != 26 {
		t.Fatal(err, report)
	}
	if _, r := mustOpen(t, work); r.Last != 26 {
		t.Errorf("%+v", r)
	}
}

// TestLogOfOlderProgram: a log without a mark opens and gets one.
func TestLogOfOlderProgram(t *testing.T) {
	t.Parallel()
	dir, last := logEnding(t, true, 20)
	testenv.Must(t, os.Remove(filepath.Join(dir, format.EndName)))
	l, r := mustOpen(t, dir)
	if r.Last != last || r.Torn != nil {
		t.Fatalf("%+v", r)
	}
	m, err := format.ReadMark(dir, l.Meta().Identity)
	if err != nil || m.Last != last || m.Checkpoint != 20 {
		t.Errorf("%+v %v", m, err)
	}
}

// TestLogOfOlderProgramBetween: an older program, which does not know the mark, may write to
// a log: the mark is old then, and what it says is still true.
func TestLogOfOlderProgramBetween(t *testing.T) {
	t.Parallel()
	dir, last := logEnding(t, true, 20)
	end := filepath.Join(dir, format.EndName)
	old, err := os.ReadFile(end)
	testenv.Must(t, err)
	l, _ := mustOpen(t, dir)
	fill(t, l, last+90, 3)
	writeCheckpoint(t, l, last+10, 3)
	closeLog(t, l)
	testenv.Must(t, os.WriteFile(end, old, 0o600))
	if _, r := mustOpen(t, dir); r.Last != last+90 || r.Checkpoint != last+10 {
		t.Errorf("%+v", r)
	}
}

// TestMarkOfCutLog: a log that was cut back on purpose is not shorter than its mark, also if
// the process ends at any moment of it.
func TestMarkOfCutLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, images := file.Real, 0
	watching := false
	look := func() {
		if !watching {
			return
		}
		images++
		l, r, err := tryOpen(copyDir(t, dir), file.Real)
		if err != nil || r.Last < 40 {
			t.Errorf("%+v %v", r, err)
			return
		}
		closeLog(t, l)
	}
	d.Data = func(f *os.File) error { look(); err := file.Real.Data(f); look(); return err }
	d.Dir = func(f *os.File) error { look(); err := file.Real.Dir(f); look(); return err }
	l, _, err := tryOpen(dir, d)
	testenv.Must(t, err)
	defer l.Close()
	fill(t, l, 120, 3)
	flush(t, l)
	watching = true
	testenv.Must(t, l.CutBack(40))
	watching = false
	if images < 4 {
		t.Errorf("%d images", images)
	}
	closeLog(t, l)
	if _, r := mustOpen(t, dir); r.Last != 40 {
		t.Errorf("%+v", r)
	}
}

// TestCheckSaysWithoutMark: a log whose mark is missing, damaged, or that of another log is sound,
// and the report says that its end is not known. The next start writes the mark.
func TestCheckSaysWithoutMark(t *testing.T) {
	t.Parallel()
	dir, _ := logEnding(t, true, 20)
	other, _ := logEnding(t, true, 20)
	foreign, err := os.ReadFile(filepath.Join(other, format.EndName))
	testenv.Must(t, err)
	const says = "not known whether entries are missing"
	check := func(what string, marked bool) {
		t.Helper()
		r, err := Check(dir, nil)
		testenv.Must(t, err)
		if r.Defect != nil || r.Marked != marked || strings.Contains(r.String(), says) == marked {
			t.Errorf("%s: %v", what, r)
		}
	}
	check("as it was", true)
	end := filepath.Join(dir, format.EndName)
	for what, content := range map[string][]byte{"another log's": foreign, "damaged": make([]byte, len(foreign)), "missing": nil} {
		testenv.Must(t, os.Remove(end))
		if content != nil {
			testenv.Must(t, os.WriteFile(end, content, 0o600))
		}
		check(what, false)
		l, _ := mustOpen(t, dir)
		closeLog(t, l)
		check(what+", and started", true)
	}
}
