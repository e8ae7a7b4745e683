package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

// TestMetaFile shows that the file of a member has its last content or, if that is torn, the one before.
func TestMetaFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), metaName)
	if _, err := (&metaFile{path: path}).load(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no file: %v", err)
	}
	s := &metaFile{path: path}
	for term := range uint64(5) {
		if err := s.save(&meta{Cluster: "c", Node: 3, Term: term + 1, Vote: 2}); err != nil {
			t.Fatal(err)
		}
		s.close()
		s = &metaFile{path: path}
		m, err := s.load()
		if err != nil || m.Term != term+1 || m.Node != 3 || m.Vote != 2 {
			t.Fatalf("%+v, %v; want term %d", m, err, term+1)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for slot, want := range []uint64{4, 5} { // what is left if the slot is torn
		torn := append([]byte(nil), b...)
		torn[slot*memberBytes+30] ^= 1
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := (&metaFile{path: path}).load()
		if err != nil || m.Term != want {
			t.Errorf("slot %d is torn: term %d, %v; want %d", slot, m.Term, err, want)
		}
	}
	b[30] ^= 1
	b[memberBytes+30] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var corrupt *commit.CorruptError
	if _, err := (&metaFile{path: path}).load(); !errors.As(err, &corrupt) {
		t.Errorf("both are damaged: %v", err)
	}
}
