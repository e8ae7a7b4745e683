package cluster

import (
	"go.etcd.io/raft/v3/raftpb"
)

// Elections carry what is committed, since those who vote may have to know it. A leader that
// takes its own vote away is the first to know that this is committed, and ends with it. If it
// has entries that the others do not have, it elects none of them; and those need its vote as long as
// they do not know that the change is committed.

// elects reports whether a message belongs to an election.
func elects(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		return true
	}
	return false
}

// hint adds the last entry that is known to be committed to a message of an election.
func (c *core) hint(m *Message) {
	if elects(m.Raft.Type) {
		if term, err := c.tail.Term(c.commit); err == nil {
			m.Stream, m.Part = c.commit, term
		}
	}
}

// learn takes the hint of a message: if this node has that very entry, all up to it is committed.
// Raft takes that from a leader only, so it is told so in the name of the other node, and to forget
// that leader.
func (c *core) learn(m *Message) {
	if !elects(m.Raft.Type) || m.Stream <= c.commit {
		return
	}
	c.settle()
	term, err := c.tail.Term(m.Stream)
	if err != nil || term != m.Part || m.Stream <= c.commit || c.leader != 0 {
		return
	}
	_ = c.raw.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: m.From, To: c.id, Term: c.term, Commit: m.Stream})
	_ = c.raw.ForgetLeader()
}
