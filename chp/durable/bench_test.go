package durable

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
)

const (
	benchRecord = 100 // bytes of an update
	benchBatch  = 1000
)

// benchDir is a directory on the disk that is to be measured: that of
// CLUSTERMAP_BENCH_DIR, or the usual one.
func benchDir(b *testing.B) string {
	root := os.Getenv("CLUSTERMAP_BENCH_DIR")
	if root == "" {
		return b.TempDir()
	}
	dir, err := os.MkdirTemp(root, "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// BenchmarkAppend appends batches of 1,000 updates of 100 bytes through a Group, under
// each policy. always-1 waits for each batch, the others for the last one.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name   string
		policy commit.Policy
		wait   bool
	}{
		{"always-1", commit.Always(), true},
		{"always", commit.Always(), false},
		{"interval", commit.Policy{}, false},
		{"never", commit.Never(), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, _, err := tryOpen(benchDir(b), file.Real)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			g := commit.NewGroup(l, commit.GroupOptions{Policy: c.policy})
			records := content(1, benchRecord*benchBatch)
			ctx := context.Background()
			b.SetBytes(int64(len(records)))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				index, err := g.Append(ctx, commit.Entry{First: uint64(i) * benchBatch, Count: benchBatch, Records: records})
				if err == nil && c.wait {
					err = g.Wait(ctx, index)
				}
				if err != nil {
					b.Fatal(err)
				}
				// A server's log does not grow for ever either.
				if i%20_000 == 19_999 {
					checkpoint, err := l.Checkpoint(g.Written(), 0)
					if err == nil {
						err = checkpoint.Commit()
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			if err := g.Close(); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			report(b, b.N*benchBatch)
			b.ReportMetric(float64(g.Flushes()), "flushes")
		})
	}
}

// report reports the rate of n updates.
func report(b *testing.B, n int) {
	updates := float64(n)
	b.ReportMetric(updates/b.Elapsed().Seconds(), "updates/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/updates, "ns/update")
}

// BenchmarkReplay replays a log of ten million updates, as a server does after a
// restart: values of 32 bytes, 75 bytes an update, some 100 KiB an entry. Each update
// is looked at and not applied.
func BenchmarkReplay(b *testing.B) {
	const (
		record  = 75
		batch   = 1400
		updates = 10_000_000
		batches = (updates + batch - 1) / batch
	)
	dir := benchDir(b)
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		b.Fatal(err)
	}
	records := content(1, record*batch)
	for i := range uint64(batches) {
		if err := l.Append(commit.Entry{Index: i + 1, Count: batch, Records: records}); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(records)) * batches)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		l, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		r, err := l.Replay(func(e commit.Entry) error {
			for left := e.Records; len(left) > 0; left = left[record:] {
				if left[0] == records[0] {
					n++
				}
			}
			return nil
		})
		if err != nil || r.Records != batches*batch || n == 0 {
			b.Fatal(r, err)
		}
		l.Close()
	}
	b.StopTimer()
	report(b, b.N*batches*batch)
}

// BenchmarkCheckpoint writes and reads back a checkpoint of 100 MB.
func BenchmarkCheckpoint(b *testing.B) {
	l, _, err := tryOpen(benchDir(b), file.Real)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	records := content(1, benchRecord*benchBatch)
	b.SetBytes(1000 * int64(len(records)))
	b.ReportAllocs()
	for range b.N {
		if err := l.Append(commit.Entry{Index: l.Last() + 1}); err != nil {
			b.Fatal(err)
		}
		c, err := l.Checkpoint(l.Last(), 0)
		if err != nil {
			b.Fatal(err)
		}
		for range 1000 {
			if err := c.Append(commit.Entry{Count: benchBatch, Records: records}); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.Commit(); err != nil {
			b.Fatal(err)
		}
		err = readCheckpoint(l.CheckpointInfo().File, l.Meta().Identity, func(e commit.Entry) error {
			if !bytes.Equal(e.Records[:8], records[:8]) {
				return fmt.Errorf("other records")
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
