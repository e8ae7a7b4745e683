package durable

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/internal/testenv"
)

// raftOf is an entry as etcd's package saves it.
func raftOf(e commit.Entry) raftpb.Entry {
	return raftpb.Entry{Term: e.Epoch, Index: e.Index, Data: append(format.AppendEntry(nil, &e), e.Records...)}
}

// contents returns the segments of a directory by name, without the zeros at their ends.
func contents(t *testing.T, logs string) map[string]string {
	t.Helper()
	all, err := segments(logs)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, s := range all {
		b, err := readFrom(s.path, 0)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(s.path)] = string(b)
	}
	return found
}

// fileList is an owner of a writer that keeps the files.
type fileList []*os.File

func (l *fileList) owned() error     { return nil }
func (l *fileList) begun(f *os.File) { *l = append(*l, f) }

// TestFirstSegmentLikeEtcd: a log begins with the same bytes as one of etcd's package, and is
// flushed before it has a name.
func TestFirstSegmentLikeEtcd(t *testing.T) {
	t.Parallel()
	metadata := []byte("metadata of a segment")
	theirs := filepath.Join(t.TempDir(), "log")
	etcd, err := wal.Create(zap.NewNop(), theirs, metadata)
	testenv.Must(t, err)
	testenv.Must(t, etcd.Close())
	ours := file.Directory{Path: t.TempDir()}
	defer ours.Close()
	testenv.Must(t, firstSegment(file.Real, &ours, metadata))
	if want, got := contents(t, theirs), contents(t, ours.Path); !equal(want, got) {
		t.Errorf("%q, want %q", got, want)
	}
	only(t, ours.Path, segmentName(0, 0))

	failing := file.Directory{Path: t.TempDir()}
	defer failing.Close()
	broken := file.Disk{Data: func(*os.File) error { return syscall.EIO }, Dir: file.Real.Dir}
	if err := firstSegment(broken, &failing, metadata); !errors.Is(err, syscall.EIO) || len(contents(t, failing.Path)) > 0 {
		t.Errorf("a flush failed: %v, %q", err, contents(t, failing.Path))
	}
}

// TestWriterLikeEtcd: a writer writes the same bytes as etcd's package, in the heads of
// segments too.
func TestWriterLikeEtcd(t *testing.T) {
	t.Parallel()
	metadata := []byte("metadata of a segment")
	theirs := filepath.Join(t.TempDir(), "log")
	etcd, err := wal.Create(zap.NewNop(), theirs, metadata)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	etcd.SetUnsafeNoFsync()

	ours := copyDir(t, theirs)
	all, err := segments(ours)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	b, err := readFrom(all[0].path, 0)
	if err != nil {
		t.Fatal(err)
	}
	end, crc := int64(0), uint32(0)
	for b = append(b, make([]byte, 8)...); ; {
		_, sum, _, n := parseFrame(b)
		if n == 0 {
			break
		}
		b, end, crc = b[n:], end+int64(n), sum
	}
	f, err := openSegment(all[0].path)
	if err != nil {
		t.Fatal(err)
	}
	files := fileList{f}
	w := newWriter(ours, metadata, f, all[0], end, crc, 0, &files)
	defer func() {
		w.close()
		for _, f := range files {
			f.Close()
		}
	}()

	index := uint64(0)
	for step, sizes := range [][]int{
		{0}, {1}, {2, 3, 4, 5, 6, 7, 8}, {100, 127, 128, 129}, {16_383, 16_384},
		{3000, 0, 20_000}, {}, {70_000}, {writeBytes}, {writeBytes - 1, 17}, {3*writeBytes + 5}, {2 << 20}, {10}, {9000, 9000},
	} {
		var entries []raftpb.Entry
		for _, size := range sizes {
			index++
			e := commit.Entry{
				Index: index, Epoch: []uint64{0, 1, 300, math.MaxUint64}[step%4], First: 1 << index, Count: math.MaxUint32,
				Kind: uint32(step), Time: -1, Records: content(index, size),
			}
			entries = append(entries, raftOf(e))
			if err := w.append(&e); err != nil {
				t.Fatal(err)
			}
		}
		var state raftpb.HardState
		if step%3 == 1 || len(sizes) == 0 {
			state = raftpb.HardState{Term: uint64(step), Vote: math.MaxUint64 - 1, Commit: index}
			if err := w.saveState(state); err != nil {
				t.Fatal(err)
			}
		}
		before := len(contents(t, theirs))
		if err := etcd.Save(state, entries); err != nil {
			t.Fatal(err)
		}
		if err := etcd.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
		// etcd looks at the size of the segment before it writes its buffer.
		want := contents(t, theirs)
		if len(want) > before {
			if !w.full() {
				t.Errorf("step %d: etcd begins a segment after %d bytes", step, w.end)
			}
			if err := w.cut(); err != nil {
				t.Fatal(err)
			}
		}
		have := contents(t, ours)
		if len(have) != len(want) || len(files) != len(want) {
			t.Fatalf("step %d: %d segments, %d files, want %d", step, len(have), len(files), len(want))
		}
		for name, b := range want {
			if have[name] != b {
				t.Fatalf("step %d: %s is not the same", step, name)
			}
		}
	}
	if len(files) < 4 {
		t.Errorf("%d segments: the test has tested too little", len(files))
	}
}

// TestWithEtcd: a log goes on that etcd's package wrote, as earlier versions did, and that
// package reads what this one wrote and goes on.
func TestWithEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	meta := l.meta
	closeLog(t, l)
	logs := filepath.Join(dir, format.LogName)

	// theirs reads the log with etcd's package, and appends to it.
	theirs := func(last uint64) {
		t.Helper()
		etcd, err := wal.Open(zap.NewNop(), logs, walpb.Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		metadata, _, entries, err := etcd.ReadAll()
		if err != nil || !bytes.Equal(metadata, segmentMetadata(&meta)) {
			t.Fatal(metadata, err)
		}
		next := uint64(0)
		for _, e := range entries {
			if next++; e.Index != next {
				t.Fatalf("entry %d, want %d", e.Index, next)
			}
			got, err := format.ParseEntry(e.Index, e.Term, e.Data)
			if err == nil {
				err = same(got)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for next < last {
			var some []raftpb.Entry
			for range min(3, last-next) {
				next++
				some = append(some, raftOf(entry(next)))
			}
			var state raftpb.HardState
			if next%4 == 0 {
				state = raftpb.HardState{Vote: meta.Token, Commit: next - 3}
			}
			if err := etcd.Save(state, some); err != nil {
				t.Fatal(err)
			}
		}
		if err := etcd.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ours := func(had, last uint64) {
		t.Helper()
		l, r := mustOpen(t, dir)
		if r.Last != had || r.Torn != nil {
			t.Fatal(fmt.Sprintf("%+v", r), "want", had)
		}
		fill(t, l, last, 3)
		flush(t, l)
		readAll(t, l, 1)
		closeLog(t, l)
		if report, err := Check(dir, nil); err != nil || report.Defect != nil || report.Last != last {
			t.Fatalf("%v\n%v", err, report)
		}
	}
	// Both begin segments.
	theirs(20)
	ours(20, 30)
	theirs(130)
	ours(130, 260)
	theirs(261)
	ours(261, 262)
	theirs(262)
	if all, err := segments(logs); err != nil || len(all) < 5 {
		t.Error(all, err)
	}
}
