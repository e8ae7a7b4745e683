package cluster

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/internal/testenv"
)

// TestServerLogBecomesCluster shows that the log of a server without a cluster, with and without a
// checkpoint, becomes a cluster of one with the same files, to which nodes are added.
func TestServerLogBecomesCluster(t *testing.T) {
	for _, checkpoint := range []bool{false, true} {
		all := []*testNode{{id: 1, dir: t.TempDir()}, {id: 2, dir: t.TempDir(), join: true}}
		addresses := map[uint64]string{}
		for _, n := range all {
			addresses[n.id] = "tcp://127.0.0.1:" + strconv.Itoa(testenv.FreePort(t))
		}
		all[0].peers, all[1].peers = map[uint64]string{1: addresses[1]}, addresses

		l, err := durable.Open(all[0].dir, durable.Options{})
		testenv.Must(t, err)
		_, err = l.Replay(func(commit.Entry) error { return nil })
		testenv.Must(t, err)
		const epoch = 1 << 50 // of a server
		value := func(v uint64) commit.Entry {
			return commit.Entry{Index: v, Epoch: epoch + v/40, Count: 1, First: v, Records: binary.BigEndian.AppendUint64(nil, v)}
		}
		for v := range uint64(100) {
			testenv.Must(t, l.Append(value(v+1)))
		}
		testenv.Must(t, l.Sync())
		if checkpoint {
			c, err := l.Checkpoint(60, 60)
			testenv.Must(t, err)
			for v := range uint64(60) {
				e := value(v + 1)
				e.Records = append(e.Records, make([]byte, valueBytes-8)...) // as lister has it
				testenv.Must(t, c.Append(e))
			}
			testenv.Must(t, c.Commit())
		}
		testenv.Must(t, l.Close())

		// With more nodes it is refused: they would not have what it has.
		_, err = Open(Options{Dir: all[0].dir, Node: 1, Cluster: ID{7}, Peers: addresses, Owner: &lister{}, Transport: simTransport{}})
		if err == nil {
			t.Fatal("a log with entries was opened as one of a new cluster")
		}
		all[0].start(t)
		same(t, all[:1], upTo(100))
		propose(t, all[:1], 101)
		if s := all[0].Status(); s.Term <= epoch {
			t.Errorf("term %d, not after the epochs of the server", s.Term)
		}
		reshape(t, all[:1], Change{ChangeAdd, 2, addresses[2]}, memberIs(2, true))
		all[1].start(t)
		same(t, all, upTo(101))
		reshape(t, all[:1], Change{Kind: ChangePromote, Node: 2}, memberIs(2, false))
		propose(t, all, 102)
		for _, n := range all {
			n.Close()
		}
		if _, err := durable.Check(all[0].dir, nil); err != nil {
			t.Error(err)
		}
		for _, n := range all {
			n.start(t)
		}
		propose(t, all, 103)
		same(t, all, upTo(103))
	}
}

// TestMissingLog shows that a member whose log is gone does not take part again as if it were new.
func TestMissingLog(t *testing.T) {
	all := newCluster(t, 1, 0)
	propose(t, all, 1)
	all[0].Close()
	for _, name := range []string{"meta", "end", "log"} {
		testenv.Must(t, os.RemoveAll(filepath.Join(all[0].dir, name)))
	}
	_, err := Open(Options{Dir: all[0].dir, Node: 1, Cluster: ID{7}, Peers: all[0].peers, Owner: &lister{}, Transport: simTransport{}})
	var corrupt *commit.CorruptError
	if !errors.As(err, &corrupt) {
		t.Errorf("opened: %v", err)
	}
}

// TestRoom shows that proposals are bounded while nothing is committed, and that Room waits.
func TestRoom(t *testing.T) {
	s, n := scenario(t)
	for _, o := range s.nodes {
		o.disk.stalled = true
	}
	e := commit.Entry{Records: make([]byte, 100)}
	var err error
	for range 1000 {
		if _, err = n.core.propose(n.status.Term, &e); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("not refused: %v", err)
	}
	if most := 2*n.core.limits.RoomBytes + 1000; n.core.pending.bytes > most {
		t.Errorf("%d bytes are under way, at most %d", n.core.pending.bytes, most)
	}
	if _, err := n.core.propose(n.status.Term+1, &e); !errors.Is(err, ErrFull) && !errors.Is(err, ErrNotLeader) {
		t.Errorf("in another term: %v", err)
	}
}
