package chp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/internal/kvmsg"
)

// kept is a checkpoint in memory.
type kept struct {
	entries            []commit.Entry
	committed, aborted bool
	fail               error
	full               func() // before each entry
}

func (k *kept) Append(e commit.Entry) error {
	if k.full != nil {
		k.full()
	}
	e.Records = bytes.Clone(e.Records)
	k.entries = append(k.entries, e)
	return k.fail
}

func (k *kept) Commit() error { k.committed = true; return nil }

func (k *kept) Abort() { k.aborted = !k.committed }

// TestClientBackup: a backup holds every record of the map as it is at one
// moment, with the sequence, UUID and properties of its update and the time that
// is left.
func TestClientBackup(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	want := map[string]int64{}
	for i := range 500 {
		key := fmt.Sprintf("/k/%d", i)
		if i%50 == 0 {
			sequence, err := c.SetSync(ctx, key, bytes.Repeat([]byte{byte(i)}, i*10+1), WithProperty("colour", "red"))
			must(t, err)
			want[key] = sequence
			continue
		}
		must(t, c.Set(ctx, key, bytes.Repeat([]byte{byte(i)}, i*10+1)))
	}
	_, err := c.SetSync(ctx, "/lease", []byte("x"), WithTTL(time.Hour), WithProperty("a", "b"))
	must(t, err)
	large, err := c.SetSync(ctx, "/large", make([]byte, 700_000))
	must(t, err)
	_, err = c.SetSync(ctx, "/k/1", []byte("y"))
	must(t, err)
	last, err := c.DeleteSync(ctx, "/k/2")
	must(t, err)

	var k kept
	var sequence int64
	moved := false
	k.full = func() {
		if !moved { // the backup must not contain this update
			moved = true
			_, err := c.SetSync(ctx, "/k/1", []byte("later"))
			must(t, err)
		}
	}
	must(t, c.Backup(ctx, func(s int64) (commit.Checkpoint, error) { sequence = s; return &k, nil }))
	if sequence != last || !k.committed || len(k.entries) < 4 {
		t.Errorf("sequence %d, want %d; %d entries", sequence, last, len(k.entries))
	}
	seen := map[string]kvmsg.Record{}
	if e := k.entries[0]; e.Kind != uint32(state.KindMap) || len(e.Records) != ledger.MapIDSize || e.Count != 0 {
		t.Errorf("the first entry is %+v", e)
	}
	for _, e := range k.entries[1:] {
		n := uint32(0)
		for left := e.Records; len(left) > 0; n++ {
			r := kvmsg.Record(left)
			r = r[:r.Size()]
			left = left[len(r):]
			if seen[string(r.Key())] != nil {
				t.Errorf("%s twice", r.Key())
			}
			seen[string(r.Key())] = r
			if len(r.UUID()) != kvmsg.UUIDSize || r.Seq() > sequence {
				t.Errorf("%s: sequence %d, UUID %x", r.Key(), r.Seq(), r.UUID())
			}
		}
		if n != e.Count || e.Kind != commit.KindRecords || time.Since(e.When()).Abs() > time.Hour {
			t.Errorf("%d records in %+v", n, e)
		}
	}
	if len(seen) != 501 || seen["/k/2"] != nil || string(seen["/k/1"].Value()) != "y" || seen["/large"].Seq() != large {
		t.Errorf("%d records", len(seen))
	}
	for key, sequence := range want {
		if r := seen[key]; r.Seq() != sequence || string(r.Props()) != "colour=red\n" {
			t.Errorf("%s: sequence %d, want %d; %q", key, r.Seq(), sequence, r.Props())
		}
	}
	if ttl := kvmsg.TTLOf(seen["/lease"].Props()); ttl <= 0 || ttl > time.Hour || !strings.Contains(string(seen["/lease"].Props()), "a=b\n") {
		t.Errorf("%q", seen["/lease"].Props())
	}
}

// TestClientBackupFails: a backup that fails is aborted.
func TestClientBackupFails(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	broken := errors.New("broken")
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	_, err := c.SetSync(ctx, "/a", []byte("x"))
	must(t, err)
	k := kept{fail: broken}
	err = c.Backup(ctx, func(int64) (commit.Checkpoint, error) { return &k, nil })
	if !errors.Is(err, broken) || !k.aborted {
		t.Error(err, k.aborted)
	}
	if err := c.Backup(ctx, func(int64) (commit.Checkpoint, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(ctx)
	k = kept{}
	err = c.Backup(gone, func(int64) (commit.Checkpoint, error) { cancel(); return &k, nil })
	if !errors.Is(err, context.Canceled) || !k.aborted {
		t.Error(err, k.aborted)
	}
	c.Close()
	if err := c.Backup(ctx, func(int64) (commit.Checkpoint, error) { return &k, nil }); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestPairFromBackup: two servers that begin with one backup of a server are a pair whose
// servers have the same map: neither gives up any update.
func TestPairFromBackup(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	c := startClient(t, s, ClientOptions{})
	for i := range 10 {
		_, err := c.SetSync(ctx, fmt.Sprintf("/%d", i), []byte("1"))
		must(t, err)
	}
	var k kept
	must(t, c.Backup(ctx, func(int64) (commit.Checkpoint, error) { return &k, nil }))
	restored := func() commit.Log {
		log := openLog(t, t.TempDir())
		_, err := log.Replay(func(commit.Entry) error { return nil })
		must(t, err)
		for i, e := range k.entries {
			e.Index = uint64(i) + 1
			must(t, log.Append(e))
		}
		must(t, log.Sync())
		return replayedLog{log, k.entries}
	}
	po, bo := pairOptions(t)
	po.Log, bo.Log = restored(), restored()
	for _, o := range []*PairOptions{po.Pair, bo.Pair} {
		o.OnDiverged = func(d Divergence) { t.Errorf("updates up to %d are given up", d.Last) }
	}
	primary, backup := startPairServer(t, po), startPairServer(t, bo)
	eventually(t, "the backup follows", primary.inSync)
	pc := pairClient(t, po, bo)
	_, err := pc.SetSync(ctx, "/new", []byte("1"))
	must(t, err)
	if primary.Len() != 11 || backup.Len() != 11 {
		t.Errorf("%d and %d keys", primary.Len(), backup.Len())
	}
}

// replayedLog is a log that was replayed, and replays its entries a second time.
type replayedLog struct {
	commit.Log
	entries []commit.Entry
}

func (l replayedLog) Replay(f func(commit.Entry) error) (commit.Replayed, error) {
	for i, e := range l.entries {
		e.Index = uint64(i) + 1
		if err := f(e); err != nil {
			return commit.Replayed{}, err
		}
	}
	return commit.Replayed{Last: uint64(len(l.entries))}, nil
}
