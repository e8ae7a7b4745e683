package cluster

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// TestWire shows that messages arrive as they were sent.
func TestWire(t *testing.T) {
	data := appendData(nil, &commit.Entry{First: 7, Count: 2, Records: []byte("records")})
	for _, m := range []*Message{
		{Kind: KindRaft, From: 1, To: 2, Stream: 9, Part: 3, Raft: raftpb.Message{Type: raftpb.MsgVote, From: 1, To: 2, Term: 4}},
		{Kind: KindRaft, From: 1, To: 2, Raft: raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Index: 5, Entries: []raftpb.Entry{
			{Index: 6, Term: 3, Data: data}, {Index: 7, Term: 3, Type: raftpb.EntryConfChangeV2, Data: []byte{1}},
		}}},
		{Kind: KindPart, From: 1, To: 2, Stream: 5, Raft: raftpb.Message{Type: raftpb.MsgSnap, From: 1, To: 2, Snapshot: &raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{Index: 8}}},
			Entry: commit.Entry{Kind: KindMembers, Epoch: 3, First: 12, Records: []byte("{}")}},
		{Kind: KindPart, From: 1, To: 2, Stream: 5, Part: 4, Entry: commit.Entry{Count: 1, Time: 5, Records: []byte("state")}},
		{Kind: KindPart, From: 1, To: 2, Stream: 5, Part: 5, Last: true},
		{Kind: KindAck, From: 1, To: 2, Stream: 5, Part: 6, Failed: true},
	} {
		frames, err := encode(m, ID{1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(frames, ID{1})
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("got  %+v\nwant %+v\n%v", got, m, err)
		}
		if _, err := decode(frames, ID{2}); !errors.Is(err, errStranger) {
			t.Errorf("of another cluster: %v", err)
		}
		frames[0][0]++
		if _, err := decode(frames, ID{1}); !errors.Is(err, commit.ErrFormat) {
			t.Errorf("of a newer version: %v", err)
		}
	}
}

// FuzzDecode shows that no message of another node makes decode or the core panic.
func FuzzDecode(f *testing.F) {
	for _, m := range []*Message{
		{Kind: KindRaft, From: 2, To: 1, Raft: raftpb.Message{Type: raftpb.MsgApp, From: 2, To: 1, Term: 3, Entries: []raftpb.Entry{{Index: 1, Term: 1, Data: make([]byte, headBytes)}}}},
		{Kind: KindRaft, From: 2, To: 1, Raft: raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1, Term: 3, Commit: 9}},
		{Kind: KindPart, From: 2, To: 1, Raft: raftpb.Message{Type: raftpb.MsgSnap, From: 2, To: 1, Term: 3, Snapshot: &raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{Index: 8, Term: 3}}}, Entry: commit.Entry{Kind: KindMembers, Records: []byte("{}")}},
		{Kind: KindAck, From: 2, To: 1, Stream: 1, Part: 1},
	} {
		frames, err := encode(m, ID{1}, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frames[0], bytes.Join(frames[1:], nil))
	}
	f.Fuzz(func(t *testing.T, head, data []byte) {
		frames := [][]byte{head}
		if len(data) > 0 {
			frames = append(frames, data)
		}
		m, err := decode(frames, ID{1})
		if err != nil {
			return
		}
		defer restoreRandom()()
		s := newSim(1, 3, 0)
		s.nodes[0].core.receive(m)
		s.nodes[0].core.tick()
	})
}
