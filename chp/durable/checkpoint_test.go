package durable

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/format"
)

// TestCheckpointBesideAppends: entries that are appended while a checkpoint is
// written stand behind it.
func TestCheckpointBesideAppends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	g := commit.NewGroup(l, commit.GroupOptions{Policy: commit.Always(), Bytes: 100 << 10})
	var writer sync.WaitGroup
	stop := make(chan struct{})
	var last uint64
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			index, err := g.Append(context.Background(), entry(last+1))
			if err != nil {
				t.Error(err)
				return
			}
			last = index
		}
	})
	var at uint64
	for i := range 10 {
		for g.Written() < at+30 {
			if err := g.Err(); err != nil {
				t.Fatal(err)
			}
			if err := g.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		at = g.Written()
		c, err := l.Checkpoint(at, at*10)
		if err != nil {
			t.Fatal(err)
		}
		for j := range 20 {
			if err := c.Append(entry(uint64(j + 1))); err != nil {
				t.Fatal(err)
			}
		}
		if i == 7 {
			c.Abort()
			at = l.CheckpointInfo().Index
			continue
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	writer.Wait()
	if err := errors.Join(g.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	_, r := mustOpen(t, dir)
	if r.Checkpoint != at || r.Last != last {
		t.Errorf("checkpoint at %d, entries to %d: %+v", at, last, r)
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
	if found, _ := format.Checkpoints(dir); len(found) != 1 {
		t.Errorf("%d checkpoints", len(found))
	}
}

// TestCheckpointContent: the written records come back, and a damaged byte anywhere is
// found.
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
		err = readCheckpoint(path, identity, func(e commit.Entry) error {
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
	report, err := Check(dir, nil)
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
