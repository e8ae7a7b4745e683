package durable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
)

// smallSegment makes tests change segments often.
const smallSegment = 64 << 10

func TestMain(m *testing.M) {
	flag.Parse()
	// Benchmarks measure the real size. It has to be set before any log is open.
	if f := flag.Lookup("test.bench"); f == nil || f.Value.String() == "" {
		wal.SegmentSizeBytes, segment.Size = smallSegment, smallSegment
	}
	if child() {
		return
	}
	goleak.VerifyTestMain(m)
}

// content is the content of a test's entry. It follows from the index and size alone.
func content(index uint64, size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(index, 1))
	for i := 0; i < len(b); i += 8 {
		var v [8]byte
		binary.LittleEndian.PutUint64(v[:], r.Uint64())
		copy(b[i:], v[:])
	}
	return b
}

// sizeOf is the size of the content of an entry of a test. Three of ten entries
// are small.
func sizeOf(index uint64) int {
	if index%10 >= 7 {
		return int(index * 13 % 50)
	}
	return int(index * 2654435761 % 3000)
}

func entry(index uint64) commit.Entry {
	return commit.Entry{
		Index: index, Epoch: 7, First: 1000 * index, Count: uint32(index%100 + 1), Kind: uint32(index % 2),
		Time: int64(index) * 1e9, Records: content(index, sizeOf(index)),
	}
}

// same returns an error if an entry differs from the appended one.
func same(e commit.Entry) error {
	want := entry(e.Index)
	if !bytes.Equal(e.Records, want.Records) {
		return fmt.Errorf("entry %d has other records", e.Index)
	}
	e.Records, want.Records = nil, nil
	if fmt.Sprint(e) != fmt.Sprint(want) {
		return fmt.Errorf("entry %+v, want %+v", e, want)
	}
	return nil
}

// mustOpen opens and replays. The entries must be those from first to the last one of
// the result.
func mustOpen(t testing.TB, dir string) (*Log, commit.Replayed) {
	t.Helper()
	l, r, err := tryOpen(dir, file.Real)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, r
}

func tryOpen(dir string, disk file.Disk) (*Log, commit.Replayed, error) {
	l, err := open(dir, Options{}, disk)
	if err != nil {
		return nil, commit.Replayed{}, err
	}
	var next uint64
	r, err := l.Replay(func(e commit.Entry) error {
		if e.Index == l.checkpoint.Index {
			return nil // the test's own
		}
		if next == 0 {
			next = l.checkpoint.Index + 1
		}
		if e.Index != next {
			return fmt.Errorf("entry %d, want %d", e.Index, next)
		}
		next++
		return same(e)
	})
	if err == nil && next > 0 && next != r.Last+1 {
		err = fmt.Errorf("entries up to %d, want %d", next-1, r.Last)
	}
	if err != nil {
		l.Close()
		return nil, r, err
	}
	return l, r, nil
}

// fill appends entries up to an index, n at a time.
func fill(t testing.TB, l *Log, last uint64, n int) {
	t.Helper()
	for l.Last() < last {
		var some []commit.Entry
		for i := l.Last() + 1; i <= last && len(some) < n; i++ {
			some = append(some, entry(i))
		}
		if err := l.Append(some...); err != nil {
			t.Fatal(err)
		}
	}
}

// flush flushes and commits everything.
func flush(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	l.Commit(l.Last())
}

// readAll checks that Read delivers all entries from an index on.
func readAll(t testing.TB, l *Log, from uint64) {
	t.Helper()
	next := from
	err := l.Read(from, func(e commit.Entry) error {
		if e.Index != next {
			return fmt.Errorf("entry %d, want %d", e.Index, next)
		}
		next++
		return same(e)
	})
	if err != nil || next != l.Last()+1 {
		t.Fatalf("Read(%d) ended before %d, want %d: %v", from, next, l.Last()+1, err)
	}
}

// copyDir copies a directory, without the lock.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func isCorrupt(err error) *commit.CorruptError {
	var c *commit.CorruptError
	if errors.As(err, &c) {
		return c
	}
	return nil
}

// readCheckpoint calls fn with the entries of a checkpoint.
func readCheckpoint(path string, identity [16]byte, fn func(commit.Entry) error) error {
	c, err := format.OpenCheckpoint(path, identity)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.State(fn)
}
