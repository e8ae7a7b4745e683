package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// TestCommittedChangeIsKept shows that a node stores that a change of the members is committed
// before it answers for what follows.
func TestCommittedChangeIsKept(t *testing.T) {
	var machine simDisk
	d := &disk{log: &simOpen{&machine}, store: &simMeta{&machine}, always: true}
	m := raftpb.Message{Term: 1, Entries: []raftpb.Entry{
		{Index: 1, Term: 1}, {Index: 2, Term: 1, Type: raftpb.EntryConfChangeV2}, {Index: 3, Term: 1},
	}}
	if err := d.write(&m, nil); err != nil {
		t.Fatal(err)
	}
	if machine.meta.Commit != 0 {
		t.Fatalf("entry %d is stored as committed", machine.meta.Commit)
	}
	m = raftpb.Message{Term: 1, Commit: 3, Entries: []raftpb.Entry{{Index: 4, Term: 1}}}
	if err := d.write(&m, nil); err != nil {
		t.Fatal(err)
	}
	if machine.meta.Commit != 2 {
		t.Errorf("entry %d is stored as committed, want 2", machine.meta.Commit)
	}
}

// TestMetaFile shows that the file of a member has its last content, also if one of its two slots is damaged
// afterwards, and that a save which a power cut ends leaves the content before it or the new one.
func TestMetaFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), metaName)
	expect := func(what string, b []byte, want uint64) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := (&metaFile{path: path}).load()
		if want == 0 {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: term %d, %v", what, m.Term, err)
			}
		} else if err != nil || m.Term != want || m.Node != 3 || m.Vote != 2 {
			t.Errorf("%s: %+v, %v; want term %d", what, m, err, want)
		}
	}
	var before []byte
	for term := uint64(1); term <= 5; term++ {
		s := &metaFile{path: path}
		if _, err := s.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := s.save(&meta{Cluster: "c", Node: 3, Term: term, Vote: 2}); err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for slot := range slots {
			damaged := slices.Clone(after)
			damaged[slot*memberBytes+30] ^= 1
			expect(fmt.Sprint("slot ", slot, " is damaged"), damaged, term)
		}
		// What a save leaves at each of its steps: the first slot is torn, is there; the second one is torn.
		first, second := memberBytes, 0
		if len(before) == 0 || s.slot == 1 {
			first, second = 0, memberBytes
		}
		step := append(slices.Clone(before), make([]byte, max(0, first+200-len(before)))...)
		copy(step[first:], after[first:first+100])
		expect("the first slot is torn", step, term-1)
		step = append(step, make([]byte, max(0, len(after)-len(step)))...)
		copy(step[first:], after[first:min(first+memberBytes, len(after))])
		expect("the first slot is written", step, term)
		copy(step[second:], after[second:second+100])
		expect("the second slot is torn", step, term)
		expect("the save is over", after, term)
		before = after
	}
	if err := os.WriteFile(path, make([]byte, memberBytes+100), 0o600); err != nil {
		t.Fatal(err)
	}
	var corrupt *commit.CorruptError
	if _, err := (&metaFile{path: path}).load(); !errors.As(err, &corrupt) {
		t.Errorf("both slots are damaged: %v", err)
	}
}

// TestMemberFileIsMissed shows that a node whose log is that of a member does not start without the file that
// says for whom it has voted.
func TestMemberFileIsMissed(t *testing.T) {
	dir := t.TempDir()
	open := func() (*Node, error) {
		return Open(Options{Dir: dir, Node: 1, Cluster: ID{7}, Peers: map[uint64]string{1: "tcp://127.0.0.1:1"}, Owner: &lister{}, Transport: simTransport{}})
	}
	n, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, metaName)); err != nil {
		t.Fatal(err)
	}
	var corrupt *commit.CorruptError
	if _, err := open(); !errors.As(err, &corrupt) || filepath.Base(corrupt.File) != metaName {
		t.Errorf("opened: %v", err)
	}
}
