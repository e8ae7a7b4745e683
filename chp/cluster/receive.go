package cluster

import (
	"errors"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// A receipt is a snapshot that arrives from a leader. It becomes a checkpoint of the log.
type receipt struct {
	id, from   uint64
	message    raftpb.Message // the one that raft gets when all has arrived
	members    members
	sequence   uint64
	checkpoint commit.Checkpoint
	next       uint64 // part
	whole      bool
	accepted   bool // raft has taken it
	idle       uint64
}

func (r *receipt) at() Position {
	m := &r.message.Snapshot.Metadata
	return Position{m.Index, m.Term}
}

// abort removes what has arrived.
func (r *receipt) abort() {
	if r != nil && r.checkpoint != nil && !r.accepted {
		r.checkpoint.Abort()
		r.checkpoint = nil
	}
}

// receivePart queues a part for the goroutine that writes to the disk.
func (c *core) receivePart(m *Message) {
	if c.partBytes < 2*windowBytes { // a leader sends no more ahead
		c.partBytes += entryBytes + len(m.Entry.Records)
		c.parts.Push(m)
	}
}

// take writes a part to the disk, and answers it.
func (c *core) take(m *Message, mu sync.Locker) {
	if m == nil { // the leader sends no more
		mu.Lock()
		r := c.stream
		c.stream = nil
		mu.Unlock()
		r.abort()
		return
	}
	mu.Lock()
	c.partBytes -= entryBytes + len(m.Entry.Records)
	r, taken := c.stream, c.taken
	if taken != nil && taken.Stream == m.Stream && taken.To == m.From { // the answer was lost
		c.out = append(c.out, taken)
		mu.Unlock()
		return
	}
	mu.Unlock()
	if r != nil && r.id == m.Stream && r.from == m.From {
		if r = c.more(r, m); r == nil {
			mu.Lock()
			c.stream = nil
			mu.Unlock()
		}
	} else {
		r = c.begins(r, m, mu)
	}
	mu.Lock()
	defer mu.Unlock()
	answer := &Message{Kind: KindAck, From: c.id, To: m.From, Stream: m.Stream, Failed: r == nil}
	if r != nil {
		answer.Part = r.next
		r.idle = 0
		if r.whole {
			c.taken = answer
			c.offer(r)
		}
	}
	c.out = append(c.out, answer)
}

// begins begins another snapshot in place of the one that has arrived so far. It returns nil if
// it cannot.
func (c *core) begins(old *receipt, m *Message, mu sync.Locker) *receipt {
	s := m.Raft.Snapshot
	if m.Part != 0 || s == nil || m.Raft.Type != raftpb.MsgSnap || m.Entry.Kind != KindMembers {
		return nil
	}
	mu.Lock()
	term, index, busy := c.term, c.commit, c.restoring || c.installs.Len() > 0
	mu.Unlock()
	if s.Metadata.Index <= index {
		c.known(&m.Raft, mu)
		return nil
	}
	if busy || m.Raft.Term < term {
		return nil
	}
	old.abort()
	to, err := decodeMembers(m.Entry.Records)
	if err != nil {
		return nil
	}
	r := &receipt{id: m.Stream, from: m.From, message: m.Raft, members: to, sequence: m.Entry.First}
	if r.checkpoint, err = c.disk.log.Install(s.Metadata.Index, r.sequence); err != nil {
		c.log.Warn("a snapshot cannot be stored", "error", err)
		r = nil
	} else if !r.add(&m.Entry) {
		r = nil
	}
	mu.Lock()
	c.stream = r
	mu.Unlock()
	return r
}

// known lets raft tell the leader that this node has what is in a snapshot: the leader's last
// messages may have been lost.
func (c *core) known(m *raftpb.Message, mu sync.Locker) {
	mu.Lock()
	defer mu.Unlock()
	c.guard(func() {
		_ = c.raw.Step(*m)
		c.settle()
	})
}

// more adds a part. It returns nil if that is not possible.
func (c *core) more(r *receipt, m *Message) *receipt {
	switch {
	case m.Part != r.next || r.whole: // it came before, or one before it was lost
	case m.Last:
		r.next++
		r.whole = true
	case !r.add(&m.Entry):
		return nil
	}
	return r
}

// add adds an entry.
func (r *receipt) add(e *commit.Entry) bool {
	err := errors.New("cluster: entry too large")
	if e.RecordBytes() <= maxEntryBytes {
		err = r.checkpoint.Append(*e)
	}
	if err != nil {
		r.abort()
		return false
	}
	r.next++
	return true
}

// offer gives raft a snapshot that is whole. If raft has use for it, it comes back in a message
// to the disk.
func (c *core) offer(r *receipt) {
	c.guard(func() {
		_ = c.raw.Step(r.message)
		c.settle()
	})
	if !r.accepted {
		r.abort()
		c.stream = nil
	}
}
