package bench

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/internal/kvmsg"
)

var replayUpdates = flag.Int("replay.updates", 1_000_000, "updates in the log of BenchmarkReplay")

// benchDir returns a new directory on the disk that is to be measured: that of
// CLUSTERMAP_BENCH_DIR, or the usual one.
func benchDir(b *testing.B) string {
	b.Helper()
	root := os.Getenv("CLUSTERMAP_BENCH_DIR")
	if root == "" {
		return b.TempDir()
	}
	dir, err := os.MkdirTemp(root, "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return dir
}

// replayEntry is how many updates an entry of the log has: some 100 KiB.
const replayEntry = 1400

// writeReplayLog makes a log of updates of random keys, with values of 32 bytes and
// without a checkpoint. It returns the bytes of the updates, how many keys there are,
// and the last value of each.
func writeReplayLog(b *testing.B, dir string, updates, keys int) (size int64, last map[int]int) {
	b.Helper()
	log, err := durable.Open(dir, durable.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := log.Replay(func(commit.Entry) error { return nil }); err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, uint64(keys)))
	last = make(map[int]int, keys)
	uuid, value := make([]byte, 16), make([]byte, 32)
	records := make([]byte, 0, replayEntry*96)
	var key []byte
	first := time.Now().UnixNano()
	for n := 0; n < updates; {
		e := commit.Entry{Index: log.Last() + 1, First: uint64(first + int64(n)), Time: time.Now().UnixNano()}
		records = records[:0]
		for ; e.Count < replayEntry && n < updates; n++ {
			i := random.IntN(keys)
			last[i] = n
			key = fmt.Appendf(key[:0], "/k/%08d", i)
			copy(value, fmt.Appendf(value[:0], "%010d", n))
			records = append(records, kvmsg.AppendRecord(nil, key, first+int64(n), uuid, nil, value)...)
			e.Count++
		}
		e.Records = records
		size += int64(len(records))
		if err := log.Append(e); err != nil {
			b.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	return size, last
}

// BenchmarkReplay starts a server on a log: from opening the log to the end of
// NewServer, when the map is there. For the size that a server should bear:
//
//	go test -run '^$' -bench Replay -benchtime 3x ./bench -replay.updates 10000000
func BenchmarkReplay(b *testing.B) {
	for _, keys := range mapSizes {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			dir := filepath.Join(benchDir(b), "log")
			size, last := writeReplayLog(b, dir, *replayUpdates, keys)
			b.SetBytes(size)
			var replaying time.Duration
			for b.Loop() {
				log, err := durable.Open(dir, durable.Options{})
				if err != nil {
					b.Fatal(err)
				}
				s, err := chp.NewServer(chp.ServerOptions{
					Log: log, Sync: commit.Never(), Logger: slog.New(slog.DiscardHandler),
					OnReplay: func(p chp.ReplayProgress) {
						if p.Done {
							replaying += p.Elapsed
						}
					},
				})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if s.Len() != len(last) {
					b.Fatalf("%d keys, want %d", s.Len(), len(last))
				}
				looked := 0
				for i, n := range last {
					if v, ok := s.Get(fmt.Sprintf("/k/%08d", i)); !ok || string(v[:10]) != fmt.Sprintf("%010d", n) {
						b.Fatalf("key %d has %q, want %d", i, v, n)
					}
					if looked++; looked == 1000 {
						break
					}
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N)*float64(*replayUpdates)/b.Elapsed().Seconds(), "updates/s")
			b.ReportMetric(float64(b.N)*float64(*replayUpdates)/replaying.Seconds(), "replay-updates/s")
		})
	}
}
