package cluster

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
	"clustermap/internal/testenv"
)

// What the first version of a cluster wrote. A later version must read it, and write the same as long as there
// may be nodes of the first one: a cluster is upgraded one node at a time.
const (
	filesOfVersion1    = "testdata/files-1.tar.gz.gz" // compressed twice: a segment is mostly zeros
	appliedOfVersion1  = "testdata/applied-1.txt"     // what its nodes had applied: value, index, term, checksum
	messagesOfVersion1 = "testdata/messages-1.txt"    // frames in hexadecimal, a line each
	endOfMessage       = "--\n"
)

// everyMessage has a message of each kind, with all that it can have.
func everyMessage() []*Message {
	data := appendData(nil, &commit.Entry{First: 7, Time: 8, Count: 2, Kind: 3, Records: []byte("records")})
	conf := raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}}
	raftMessage := func(m raftpb.Message) *Message {
		m.From, m.To = 1, 2
		return &Message{Kind: KindRaft, From: 1, To: 2, Raft: m}
	}
	vote := raftMessage(raftpb.Message{Type: raftpb.MsgVote, Term: 4, LogTerm: 3, Index: 9})
	vote.Stream, vote.Part = 9, 3
	all := []*Message{
		vote,
		raftMessage(raftpb.Message{Type: raftpb.MsgPreVote, Term: 5, LogTerm: 3, Index: 9}),
		raftMessage(raftpb.Message{Type: raftpb.MsgVoteResp, Term: 4, Reject: true}),
		raftMessage(raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: 5}),
		raftMessage(raftpb.Message{Type: raftpb.MsgApp, Term: 4, LogTerm: 3, Index: 5, Commit: 4, Entries: []raftpb.Entry{
			{Index: 6, Term: 3, Data: data}, {Index: 7, Term: 3, Data: []byte{}}, {Index: 8, Term: 4, Type: raftpb.EntryConfChangeV2, Data: []byte{1}},
		}}),
		raftMessage(raftpb.Message{Type: raftpb.MsgAppResp, Term: 4, Index: 8}),
		raftMessage(raftpb.Message{Type: raftpb.MsgAppResp, Term: 4, Index: 8, Reject: true, RejectHint: 5, LogTerm: 3}),
		raftMessage(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 4, Commit: 8, Context: []byte("context of 16 b.")}),
		raftMessage(raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 4, Context: []byte("context of 16 b.")}),
		raftMessage(raftpb.Message{Type: raftpb.MsgReadIndex, Term: 4, Entries: []raftpb.Entry{{Data: []byte("context of 16 b.")}}}),
		raftMessage(raftpb.Message{Type: raftpb.MsgReadIndexResp, Term: 4, Index: 8, Entries: []raftpb.Entry{{Data: []byte("context of 16 b.")}}}),
		raftMessage(raftpb.Message{Type: raftpb.MsgTimeoutNow, Term: 4}),
		{Kind: KindPart, From: 1, To: 2, Stream: 5, Raft: raftpb.Message{Type: raftpb.MsgSnap, From: 1, To: 2, Term: 4, Snapshot: &raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{Index: 8, Term: 3, ConfState: conf}}},
			Entry: commit.Entry{Kind: KindMembers, Epoch: 3, First: 12, Records: (&members{Index: 4, Conf: conf, Addresses: map[uint64]string{1: "tcp://a:1", 2: "tcp://b:2", 3: "tcp://c:3"}}).encode()}},
		{Kind: KindPart, From: 1, To: 2, Stream: 5, Part: 1, Entry: commit.Entry{Epoch: 2, First: 6, Count: 1, Time: 5, Records: []byte("state")}},
		{Kind: KindPart, From: 1, To: 2, Stream: 5, Part: 2, Last: true},
		{Kind: KindAck, From: 2, To: 1, Stream: 5, Part: 3},
		{Kind: KindAck, From: 2, To: 1, Stream: 5, Failed: true},
		{Kind: KindNote, From: 1, To: 2, Note: []byte("note")},
	}
	return all
}

// TestMessagesOfVersion1 shows that messages between nodes are what they were in the first version, in both
// directions, so that nodes of both versions are in one cluster while it is upgraded.
func TestMessagesOfVersion1(t *testing.T) {
	var text strings.Builder
	for _, m := range everyMessage() {
		frames, err := encode(m, ID{1, 2, 3}, nil)
		testenv.Must(t, err)
		for _, f := range frames {
			fmt.Fprintln(&text, hex.EncodeToString(f))
		}
		text.WriteString(endOfMessage)
	}
	if testenv.Update() {
		testenv.Must(t, os.WriteFile(messagesOfVersion1, []byte(text.String()), 0o644))
	}
	b, err := os.ReadFile(messagesOfVersion1)
	testenv.Must(t, err)
	if string(b) != text.String() {
		t.Errorf("messages are not what they were:\n%s\nwant\n%s", text.String(), b)
	}
	for i, one := range strings.Split(strings.TrimSuffix(string(b), endOfMessage), endOfMessage) {
		var frames [][]byte
		for line := range strings.Lines(one) {
			f, err := hex.DecodeString(strings.TrimSpace(line))
			testenv.Must(t, err)
			frames = append(frames, f)
		}
		m, err := decode(frames, ID{1, 2, 3})
		want := everyMessage()[i]
		if err != nil || !reflect.DeepEqual(m, want) {
			t.Errorf("message %d of version 1 is read as\n%+v, %v\nwant\n%+v", i, m, err, want)
		}
	}
}

// TestFilesOfVersion1 shows that nodes go on with directories of the first version: the member file, the log and a
// checkpoint. They have what they had, and work together. With -update today's version writes the directories.
func TestFilesOfVersion1(t *testing.T) {
	if testenv.Update() {
		writeFiles(t)
	}
	root := memoryDir(t)
	defer os.RemoveAll(root)
	testenv.Must(t, unpack(root, filesOfVersion1))
	f, err := os.Open(appliedOfVersion1)
	testenv.Must(t, err)
	defer f.Close()
	var applied simOwner
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v uint64
		var at Position
		var sum uint32
		if _, err := fmt.Sscan(lines.Text(), &v, &at.Index, &at.Term, &sum); err != nil {
			t.Fatal(err)
		}
		applied.values, applied.at, applied.sums = append(applied.values, v), append(applied.at, at), append(applied.sums, sum)
	}
	defer restoreRandom()()
	s := newSim(2, 3, 0, func(n *simNode) {
		s := n.sim
		s.chosen, s.chosenAt, s.chosenSum = applied.values, applied.at, applied.sums
		s.value, s.committed = applied.values[len(applied.values)-1]+1000, applied.at[len(applied.at)-1].Index
		n.files = &simFiles{dir: filepath.Join(root, fmt.Sprint(n.id)), adopt: true}
	})
	defer func() {
		for _, n := range s.nodes {
			n.files.close()
		}
	}()
	for _, n := range s.nodes {
		if s.failed == "" && (len(n.owner.values) == 0 || n.disk.now.index == 0 || n.core.term < 2) {
			t.Errorf("%v: %d values, checkpoint at %d, term %d", n, len(n.owner.values), n.disk.now.index, n.core.term)
		}
	}
	s.heal()
	if s.failed != "" {
		t.Fatalf("VIOLATED %s\n%s", s.failed, s.transcript(60))
	}
	if have := len(s.nodes[0].owner.values); have <= len(applied.values) {
		t.Errorf("%d values, want more than the %d of before", have, len(applied.values))
	}
}

// writeFiles writes the directories of a cluster whose nodes were killed.
func writeFiles(t *testing.T) {
	root := memoryDir(t)
	defer os.RemoveAll(root)
	defer restoreRandom()()
	s := newSim(1, 3, 0, func(n *simNode) { n.files = &simFiles{dir: filepath.Join(root, fmt.Sprint(n.id))} })
	s.elected(t, nil)
	s.chaos(&profile{}, 100)
	for _, n := range s.nodes {
		n.core.tasks.Push(task{cut: true, save: func(k *cut, err error) {
			testenv.Must(t, err)
			testenv.Must(t, n.core.disk.checkpoint(t.Context(), k))
		}})
	}
	s.chaos(&profile{}, 60)
	files := filepath.Join(root, "files")
	for _, n := range s.nodes {
		n.crash(false)
		testenv.Must(t, copyDir(filepath.Join(files, fmt.Sprint(n.id)), n.files.dir))
	}
	if s.failed != "" {
		t.Fatal(s.failed)
	}
	testenv.Must(t, os.MkdirAll("testdata", 0o755))
	testenv.Must(t, pack(files, filesOfVersion1))
	var text strings.Builder
	for i, v := range s.chosen {
		fmt.Fprintln(&text, v, s.chosenAt[i].Index, s.chosenAt[i].Term, s.chosenSum[i])
	}
	testenv.Must(t, os.WriteFile(appliedOfVersion1, []byte(text.String()), 0o644))
}

func pack(dir, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	outer, _ := gzip.NewWriterLevel(f, gzip.BestCompression)
	inner, _ := gzip.NewWriterLevel(outer, gzip.BestCompression)
	archive := tar.NewWriter(inner)
	return errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close(), inner.Close(), outer.Close(), f.Close())
}

func unpack(dir, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	outer, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	inner, err := gzip.NewReader(outer)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(inner); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(name, 0o700); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		w, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if _, err := io.Copy(w, archive); err != nil {
			return errors.Join(err, w.Close())
		}
		if err := w.Close(); err != nil {
			return err
		}
	}
}
