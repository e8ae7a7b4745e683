package durable

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"clustermap/chp/commit"
)

// TestRoundTrip appends over several segments, one and several entries at a
// time, and reads everything back, before and after a restart.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "log")
	l, r := mustOpen(t, dir)
	if r.Last != 0 || l.First() != 1 || l.Last() != 0 {
		t.Fatalf("a new log has %+v", r)
	}
	identity := l.Meta().Identity
	fill(t, l, 100, 1)
	flush(t, l)
	fill(t, l, 200, 7)
	readAll(t, l, 1)
	readAll(t, l, 150)
	readAll(t, l, 201)
	if err := l.Read(202, nil); !errors.Is(err, commit.ErrOrder) {
		t.Error("Read behind the end:", err)
	}
	if l.Synced() != 100 {
		t.Error("synced", l.Synced())
	}
	closeLog(t, l)
	closeLog(t, l)
	if err := l.Append(entry(201)); !errors.Is(err, commit.ErrClosed) {
		t.Error("Append after Close:", err)
	}
	all, _ := segments(filepath.Join(dir, logName))
	if len(all) < 4 {
		t.Fatalf("%d segments", len(all))
	}

	l, r = mustOpen(t, dir)
	if r.Last != 200 || r.Entries != 200 || r.Torn != nil || l.Meta().Identity != identity || l.Synced() != 200 {
		t.Fatalf("after a restart: %+v", r)
	}
	fill(t, l, 300, 5)
	closeLog(t, l)
	l, r = mustOpen(t, dir)
	if r.Last != 300 {
		t.Fatalf("after a second restart: %+v", r)
	}
	readAll(t, l, 99)
}

// TestRestarts changes segments and restarts at every number of entries.
func TestRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for last := uint64(0); last < 90; last++ {
		l, r := mustOpen(t, dir)
		if r.Last != last || r.Torn != nil {
			t.Fatalf("restart %d: %+v", last, r)
		}
		fill(t, l, last+1, 1)
		closeLog(t, l)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none"), Options{NoCreate: true}); !errors.Is(err, os.ErrNotExist) {
		t.Error("NoCreate:", err)
	}
	if _, err := Open(dir, Options{NoCreate: true}); !errors.Is(err, os.ErrNotExist) {
		t.Error("NoCreate on an empty directory:", err)
	}
	l, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Append(entry(1)); !errors.Is(err, commit.ErrNotReplayed) {
		t.Error("Append before Replay:", err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, commit.ErrLocked) {
		t.Error("second Open:", err)
	}
	if _, err := l.Replay(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Replay(nil); err == nil {
		t.Error("a second Replay worked")
	}
	if err := l.Append(entry(2)); !errors.Is(err, commit.ErrOrder) {
		t.Error("Append out of order:", err)
	}
	e := entry(1)
	e.Records = make([]byte, MaxEntryBytes+1)
	if err := l.Append(e); !errors.Is(err, commit.ErrTooLarge) {
		t.Error("Append of too much:", err)
	}
	fill(t, l, 3, 1)
	if _, err := l.Checkpoint(4, 0); !errors.Is(err, commit.ErrOrder) {
		t.Error("Checkpoint behind the end:", err)
	}
	if err := l.CutBack(4); !errors.Is(err, commit.ErrOrder) {
		t.Error("CutBack behind the end:", err)
	}
}

func TestEpoch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	if err := l.SetEpoch(5); err != nil {
		t.Fatal(err)
	}
	if err := l.SetEpoch(4); !errors.Is(err, commit.ErrOrder) {
		t.Error("a lower epoch:", err)
	}
	closeLog(t, l)
	l, _ = mustOpen(t, dir)
	if l.Epoch() != 5 {
		t.Error("epoch", l.Epoch())
	}
	closeLog(t, l)

	path := filepath.Join(dir, metaName)
	good, _ := os.ReadFile(path)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, Options{})
		if isCorrupt(err) == nil && !errors.Is(err, commit.ErrFormat) {
			t.Fatalf("byte %d of the metadata changed: %v", i, err)
		}
	}
	os.Remove(path)
	if l, err := Open(dir, Options{}); err != nil {
		t.Fatal("a creation that was interrupted before the metadata:", err)
	} else {
		l.Close()
	}
}

// TestMissingMeta: entries without metadata are not thrown away as an
// interrupted creation.
func TestMissingMeta(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 1, 1)
	closeLog(t, l)
	os.Remove(filepath.Join(dir, metaName))
	if _, err := Open(dir, Options{}); isCorrupt(err) == nil {
		t.Error("opened:", err)
	}
}

func TestCutBack(t *testing.T) {
	t.Parallel()
	for _, keep := range []uint64{0, 1, 2, 20, 50, 99, 100} {
		dir := t.TempDir()
		l, _ := mustOpen(t, dir)
		fill(t, l, 60, 3)
		flush(t, l)
		fill(t, l, 100, 3)
		flush(t, l)
		if err := l.CutBack(keep); err != nil {
			t.Fatal(keep, err)
		}
		if l.Last() != keep || l.Committed() > keep {
			t.Fatalf("cut to %d: last %d, committed %d", keep, l.Last(), l.Committed())
		}
		readAll(t, l, 1)
		// Restart right away, and after more entries.
		l2, r := mustOpen(t, copyDir(t, dir))
		if r.Last != keep || r.Torn != nil {
			t.Fatalf("cut to %d, restart: %+v", keep, r)
		}
		closeLog(t, l2)
		fill(t, l, keep+70, 3)
		flush(t, l)
		readAll(t, l, 1)
		closeLog(t, l)
		l, r = mustOpen(t, dir)
		if r.Last != keep+70 {
			t.Fatalf("cut to %d, more, restart: %+v", keep, r)
		}
		closeLog(t, l)
	}
}

// writeCheckpoint writes a checkpoint of n pieces.
func writeCheckpoint(t testing.TB, l *Log, index uint64, n int) {
	t.Helper()
	c, err := l.Checkpoint(index, index*1000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	for i := range n {
		if err := c.Append(entry(uint64(i) + 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 150, 4)
	c, err := l.Checkpoint(100, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Checkpoint(100, 0); err == nil {
		t.Error("two checkpoints at a time")
	}
	c.Append(entry(1))
	c.Abort()
	for index := uint64(100); index <= 300; index += 50 {
		fill(t, l, index+20, 4)
		writeCheckpoint(t, l, index, 30)
		if l.First() > index || l.First() < index-100 {
			t.Errorf("checkpoint at %d: the log begins with %d", index, l.First())
		}
		if err := l.Read(l.First()-1, nil); !errors.Is(err, commit.ErrGone) {
			t.Error("Read of what was removed:", err)
		}
		readAll(t, l, l.First())
		l2, r := mustOpen(t, copyDir(t, dir))
		if r.Checkpoint != index || r.Sequence != index*1000 || r.Last != l.Last() || r.Entries != 30+r.Last-index {
			t.Fatalf("checkpoint at %d, restart: %+v", index, r)
		}
		readAll(t, l2, l2.First())
		closeLog(t, l2)
	}
	if err := l.CutBack(299); !errors.Is(err, commit.ErrOrder) {
		t.Error("CutBack below the checkpoint:", err)
	}
	if err := l.CutBack(300); err != nil {
		t.Error(err)
	}
	fill(t, l, 310, 1)
	closeLog(t, l)
	_, r := mustOpen(t, dir)
	if r.Last != 310 || r.Checkpoint != 300 {
		t.Fatalf("%+v", r)
	}
	if found, _ := checkpoints(dir); len(found) != 1 {
		t.Errorf("%d checkpoints", len(found))
	}
}

// TestCheckpointContent: what comes back is what was written, and a damaged
// byte anywhere is found.
func TestCheckpointContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	fill(t, l, 5, 1)
	c, err := l.Checkpoint(5, 99)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		e := entry(uint64(i))
		e.Records = content(uint64(i), 200*i)
		if err := c.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	path, identity := l.CheckpointInfo().File, l.Meta().Identity
	closeLog(t, l)
	read := func() (n int, err error) {
		_, _, err = readCheckpoint(path, identity, func(e commit.Entry) error {
			if e.Index != 5 || e.First != uint64(n)*1000 || !bytes.Equal(e.Records, content(uint64(n), 200*n)) {
				t.Fatalf("piece %d: %+v", n, e)
			}
			n++
			return nil
		})
		return n, err
	}
	if n, err := read(); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		os.WriteFile(path, bad, 0o600)
		if _, err := read(); isCorrupt(err) == nil && !errors.Is(err, commit.ErrFormat) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		os.WriteFile(path, good[:i], 0o600)
		if _, err := read(); isCorrupt(err) == nil {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	report, err := Check(dir)
	if err != nil || isCorrupt(report.Defect) == nil || report.Last != 5 {
		t.Errorf("Check: %v\n%v", err, report)
	}
	if l, err := Open(dir, Options{}); err == nil {
		if _, err = l.Replay(func(commit.Entry) error { return nil }); isCorrupt(err) == nil {
			t.Error("replayed:", err)
		}
		l.Close()
	}
}

// TestReadBesideWriter reads while entries are appended and checkpoints remove
// what is read.
func TestReadBesideWriter(t *testing.T) {
	t.Parallel()
	l, _ := mustOpen(t, t.TempDir())
	fill(t, l, 200, 3)
	next := uint64(1)
	err := l.Read(1, func(e commit.Entry) error {
		if e.Index != next {
			t.Fatalf("entry %d, want %d", e.Index, next)
		}
		if next%20 == 0 {
			fill(t, l, l.Last()+30, 3)
			flush(t, l)
			writeCheckpoint(t, l, l.Last()-5, 1)
		}
		next++
		return same(e)
	})
	if err != nil || next != 201 {
		t.Fatal(next, err)
	}
	if l.First() < 400 {
		t.Error("after the reader ended, the log begins with", l.First())
	}
}
