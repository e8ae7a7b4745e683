package cluster

import (
	"iter"
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
	"clustermap/internal/mutate"
)

// A cut is a copy of the state with what a snapshot needs beside it.
type cut struct {
	image   Image
	at      Position
	members members
	born    uint64 // when, in ticks
}

func (k *cut) release() {
	if k != nil {
		k.image.Release()
	}
}

// head returns the first entry of a checkpoint or a snapshot.
func (k *cut) head() commit.Entry {
	return commit.Entry{Kind: KindMembers, Index: k.at.Index, Epoch: k.at.Term, First: k.image.Sequence(), Records: k.members.encode()}
}

// mislabel gives a cut another index than that of its state, if a test wants that.
func (c *core) mislabel(k *cut) {
	if mutate.ClusterSnapshotIndex && c.commit > k.at.Index {
		if term, err := c.tail.Term(c.commit); err == nil {
			k.at = Position{c.commit, term}
		}
	}
}

// snapshot is what raft asks for when a follower needs more than the tail has. It is the last
// cut, if what follows that is in the tail; otherwise a cut is made, and raft asks again at the
// follower's next answer.
func (c *core) snapshot() (raftpb.Snapshot, error) {
	if k := c.cut; k != nil && k.at.Index >= c.tail.prev.Index && len(c.streams) < maxStreams {
		return raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{ConfState: k.members.Conf, Index: k.at.Index, Term: k.at.Term}}, nil
	}
	if !c.cutting && len(c.streams) < maxStreams {
		c.cutting = true
		c.tasks.Push(task{cut: true})
	}
	return raftpb.Snapshot{}, raft.ErrSnapshotTemporarilyUnavailable
}

// A stream is a snapshot on its way to a follower. At most windowBytes are sent ahead of what the
// follower has taken, and kept to be sent again.
type stream struct {
	id, to uint64
	cut    *cut
	next   func() (commit.Entry, bool)
	stop   func()

	window []*Message // sent, and not taken
	bytes  int        // of the window
	parts  uint64     // made
	whole  bool       // the last part was made
	idle   uint64     // ticks without an answer
	over   bool
	busy   bool // a goroutine makes parts
}

// send begins a stream with the snapshot of a message of raft.
func (c *core) send(m *raftpb.Message) {
	k := c.cut
	if k == nil || k.at.Index != m.Snapshot.Metadata.Index {
		c.raw.ReportSnapshot(m.To, raft.SnapshotFailure)
		return
	}
	c.cut = nil
	for _, s := range c.streams {
		if s.to == m.To {
			c.endStream(s)
			break
		}
	}
	s := &stream{id: c.reads.number + c.now<<20 + k.at.Index, to: m.To, cut: k}
	s.next, s.stop = iter.Pull(k.image.Entries())
	c.streams = append(c.streams, s)
	c.post(s, &Message{Raft: *m, Entry: k.head()})
}

// post sends a part.
func (c *core) post(s *stream, m *Message) {
	m.Kind, m.From, m.To, m.Stream, m.Part = KindPart, c.id, s.to, s.id, s.parts
	s.parts++
	s.whole = m.Last
	s.window = append(s.window, m)
	s.bytes += entryBytes + len(m.Entry.Records)
	c.out = append(c.out, m)
}

// wants reports whether a stream has room for another part.
func (s *stream) wants() bool { return !s.over && !s.whole && s.bytes < windowBytes }

// fill makes parts of a stream, as many as there is room for. It reads the image without the
// mutex of the core.
func (c *core) fill(s *stream, mu sync.Locker) {
	mu.Lock()
	defer mu.Unlock()
	if s.busy {
		return
	}
	s.busy = true
	for s.wants() {
		mu.Unlock()
		e, ok := s.next()
		if ok {
			e.Records = slices.Concat(append([][]byte{e.Records}, e.Parts...)...)
			e.Parts = nil
		}
		mu.Lock()
		if s.over {
			break
		}
		c.post(s, &Message{Last: !ok, Entry: e})
	}
	s.busy = false
	if s.over {
		s.free()
	}
}

// free lets the image go.
func (s *stream) free() {
	if s.cut != nil {
		s.stop()
		s.cut.release()
		s.cut = nil
	}
}

// endStream ends a stream.
func (c *core) endStream(s *stream) {
	s.over = true
	s.window = nil
	if !s.busy {
		s.free()
	}
	c.streams = slices.DeleteFunc(c.streams, func(o *stream) bool { return o == s })
}

func (c *core) endStreams() {
	for len(c.streams) > 0 {
		c.endStream(c.streams[0])
	}
}

// receiveAck takes an answer of a follower to parts.
func (c *core) receiveAck(m *Message) {
	i := slices.IndexFunc(c.streams, func(s *stream) bool { return s.id == m.Stream && s.to == m.From })
	if i < 0 {
		return
	}
	s := c.streams[i]
	for len(s.window) > 0 && s.window[0].Part < m.Part {
		s.bytes -= entryBytes + len(s.window[0].Entry.Records)
		s.window = s.window[1:]
		s.idle = 0
	}
	switch {
	case m.Failed:
		c.endStream(s)
		c.raw.ReportSnapshot(s.to, raft.SnapshotFailure)
	case s.whole && m.Part >= s.parts:
		c.endStream(s)
		c.raw.ReportSnapshot(s.to, raft.SnapshotFinish)
	case s.wants():
		c.pulls.Push(s)
	}
}

// tickStreams sends again what was lost, and gives up what has had no answer for long.
func (c *core) tickStreams() {
	for _, s := range slices.Clone(c.streams) {
		s.idle++
		switch {
		case s.idle >= streamTicks:
			c.endStream(s)
			c.raw.ReportSnapshot(s.to, raft.SnapshotFailure)
		case s.idle%electionTicks == 0:
			c.out = append(c.out, s.window...)
		}
	}
	if k := c.cut; k != nil && c.now-k.born > streamTicks { // nobody needs it any more
		k.release()
		c.cut = nil
	}
	if r := c.stream; r != nil {
		if r.idle++; r.idle == 2*streamTicks {
			c.parts.Push(nil)
		}
	}
}
