package durable

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
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
	all, _ := segment.List(filepath.Join(dir, format.LogName))
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

	path := filepath.Join(dir, format.MetaName)
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
	os.Remove(filepath.Join(dir, format.EndName))
	if l, err := Open(dir, Options{}); err != nil {
		t.Fatal("a creation that was interrupted before the metadata:", err)
	} else {
		l.Close()
	}
}
