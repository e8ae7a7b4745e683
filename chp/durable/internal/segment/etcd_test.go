package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/internal/testenv"
)

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes, Size = 64<<10, 64<<10 // tests change segments often
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
		var hard raftpb.HardState
		if step%3 == 1 || len(sizes) == 0 {
			hard = raftpb.HardState{Term: uint64(step), Vote: math.MaxUint64 - 1, Commit: index}
			if err := w.saveState(state{hard.Term, hard.Vote, hard.Commit}); err != nil {
				t.Fatal(err)
			}
		}
		before := len(contents(t, theirs))
		if err := etcd.Save(hard, entries); err != nil {
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

// TestReaderLikeEtcd: whatever happens to the bytes of a segment, it is read as by etcd's package, and up to
// the same offset.
func TestReaderLikeEtcd(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	dir := Dir{file.Real, file.Directory{Path: logs}}
	defer dir.Names.Close()
	testenv.Must(t, dir.Create(&someMeta))
	w, err := dir.Resume(&someMeta, 0, func() error { return nil })
	testenv.Must(t, err)
	for i := range uint64(20) {
		e := commit.Entry{Index: i + 1, Epoch: i, First: 1 << i, Count: uint32(i), Records: bytes.Repeat([]byte{byte(i)}, int(i*i))}
		testenv.Must(t, w.Append(&e))
		if i%5 == 4 {
			testenv.Must(t, w.Vouch(i, i))
		}
	}
	testenv.Must(t, w.Flush())
	w.Close()
	all, err := List(logs)
	testenv.Must(t, err)
	whole, err := os.ReadFile(all[0].Path)
	testenv.Must(t, err)
	end := lastNonzero(whole) + 1
	whole = whole[:end+64]

	path := filepath.Join(t.TempDir(), "damaged")
	read := func(b []byte) (ours, theirs []string) {
		testenv.Must(t, os.WriteFile(path, b, 0o600))
		f, err := os.Open(path)
		testenv.Must(t, err)
		defer f.Close()
		d := newDecoder(f, int64(len(b)))
		for r, err := d.next(); err == nil; r, err = d.next() {
			if r.kind == kindChecksum {
				d.crc = r.crc
			}
			ours = append(ours, fmt.Sprintf("%d %q, up to %d", r.kind, r.data, d.offset))
		}
		_, err = f.Seek(0, io.SeekStart)
		testenv.Must(t, err)
		etcd := wal.NewDecoder(fileutil.NewFileReader(f))
		var r walpb.Record
		for etcd.Decode(&r) == nil && r.Type >= kindMetadata && r.Type <= kindSnapshot {
			if r.Type == kindChecksum {
				etcd.UpdateCRC(r.Crc)
			}
			theirs = append(theirs, fmt.Sprintf("%d %q, up to %d", r.Type, r.Data, etcd.LastOffset()))
		}
		return ours, theirs
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		b := bytes.Clone(whole)
		at := random.IntN(end)
		switch i % 4 {
		case 0:
			b = b[:at]
		case 1:
			clear(b[at:])
		case 2:
			clear(b[at:min(at+random.IntN(64), len(b))])
		case 3:
			b[at] ^= 1 << random.IntN(8)
		}
		if i == 0 {
			b = whole
		}
		ours, theirs := read(b)
		if i == 0 && len(ours) < 20 {
			t.Fatalf("%d records", len(ours))
		}
		if !slices.Equal(ours, theirs) {
			t.Fatalf("change %d at %d:\n%q\n%q", i, at, ours, theirs)
		}
	}
}
