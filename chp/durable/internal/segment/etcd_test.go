package segment

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/internal/testenv"
)

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 64 << 10 // tests change segments often
	goleak.VerifyTestMain(m)
}

// contents returns the segments of a directory by name, without the zeros at their ends.
func contents(t *testing.T, logs string) map[string]string {
	t.Helper()
	all, err := List(logs)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, s := range all {
		b, err := readFrom(s.Path, 0)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(s.Path)] = string(b)
	}
	return found
}

var someMeta = format.Meta{Format: 1, Identity: [16]byte{1, 2, 3}, Token: math.MaxUint64 - 1}

// TestFirstSegmentLikeEtcd: a log begins with the same bytes as one of etcd's package, and is
// flushed before it has a name.
func TestFirstSegmentLikeEtcd(t *testing.T) {
	t.Parallel()
	metadata := Metadata(&someMeta)
	theirs := filepath.Join(t.TempDir(), "log")
	etcd, err := wal.Create(zap.NewNop(), theirs, metadata)
	testenv.Must(t, err)
	testenv.Must(t, etcd.Close())
	ours := Dir{file.Real, file.Directory{Path: t.TempDir()}}
	defer ours.Names.Close()
	testenv.Must(t, ours.Create(&someMeta))
	if want, got := contents(t, theirs), contents(t, ours.Names.Path); !maps.Equal(want, got) {
		t.Errorf("%q, want %q", got, want)
	}
	if all, err := os.ReadDir(ours.Names.Path); err != nil || len(all) != 1 || all[0].Name() != name(0, 0) {
		t.Error(all, err)
	}

	broken := file.Disk{Data: func(*os.File) error { return syscall.EIO }, Dir: file.Real.Dir}
	failing := Dir{broken, file.Directory{Path: t.TempDir()}}
	defer failing.Names.Close()
	if err := failing.Create(&someMeta); !errors.Is(err, syscall.EIO) || len(contents(t, failing.Names.Path)) > 0 {
		t.Errorf("a flush failed: %v, %q", err, contents(t, failing.Names.Path))
	}
}

// TestWriterLikeEtcd: a writer writes the same bytes as etcd's package, in the heads of
// segments too.
func TestWriterLikeEtcd(t *testing.T) {
	t.Parallel()
	metadata := Metadata(&someMeta)
	theirs := filepath.Join(t.TempDir(), "log")
	etcd, err := wal.Create(zap.NewNop(), theirs, metadata)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	etcd.SetUnsafeNoFsync()

	ours := t.TempDir()
	testenv.Must(t, os.CopyFS(ours, os.DirFS(theirs)))
	all, err := List(ours)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	b, err := readFrom(all[0].Path, 0)
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
	f, err := Open(all[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(ours, &someMeta, f, all[0], end, crc, 0, func() error { return nil })
	defer w.Close()

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
				Kind: uint32(step), Time: -1, Records: bytes.Repeat([]byte{byte(index)}, size),
			}
			entries = append(entries, raftpb.Entry{Term: e.Epoch, Index: e.Index, Data: append(format.AppendEntry(nil, &e), e.Records...)})
			if err := w.Append(&e); err != nil {
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
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		// etcd looks at the size of the segment before it writes its buffer.
		want := contents(t, theirs)
		if len(want) > before {
			if !w.Full() {
				t.Errorf("step %d: etcd begins a segment after %d bytes", step, w.end)
			}
			if err := w.Cut(); err != nil {
				t.Fatal(err)
			}
		}
		have := contents(t, ours)
		if len(have) != len(want) || len(w.files) != len(want) {
			t.Fatalf("step %d: %d segments, %d files, want %d", step, len(have), len(w.files), len(want))
		}
		for name, b := range want {
			if have[name] != b {
				t.Fatalf("step %d: %s is not the same", step, name)
			}
		}
	}
	if len(w.files) < 4 {
		t.Errorf("%d segments: the test has tested too little", len(w.files))
	}

	// Behind damage, only what has the log's token counts as flushed.
	for token, want := range map[uint64]uint64{someMeta.Token: index, someMeta.Token + 1: 0} {
		var highest uint64
		for _, b := range contents(t, ours) {
			_, _, _, n := parseFrame([]byte(b))
			highest = max(highest, vouched([]byte(b[n:]), token))
		}
		if highest != want {
			t.Errorf("token %d: updates up to %d were flushed, want %d", token, highest, want)
		}
	}
}
