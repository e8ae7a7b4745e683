package durable

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
)

// raftOf is an entry as etcd's package saves it.
func raftOf(e commit.Entry) raftpb.Entry {
	return raftpb.Entry{Term: e.Epoch, Index: e.Index, Data: append(format.AppendEntry(nil, &e), e.Records...)}
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
		if err != nil || !bytes.Equal(metadata, segment.Metadata(&meta)) {
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
	if all, err := segment.List(logs); err != nil || len(all) < 5 {
		t.Error(all, err)
	}
}
