package cluster

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"clustermap/internal/fifo"
)

// A stall tells for how long the disk has been busy with what it was given first.
type stall struct {
	since fifo.Queue[uint64] // when each write that is not on the disk was given, in ticks
	moved uint64             // when the term was last offered to another node
}

func (s *stall) begun(now uint64) { s.since.Push(now) }

func (s *stall) ended() {
	if s.since.Len() > 0 {
		s.since.Pop()
	}
}

// stalled hands the term over if this node leads and its disk has not finished a write for an
// election time-out: others can commit without it, but it may never.
func (c *core) stalled() {
	s := &c.stall
	if c.role != raft.StateLeader || s.since.Len() == 0 || c.now-s.since.Front() < electionTicks {
		return
	}
	if s.moved > 0 && c.now-s.moved < 2*electionTicks {
		return
	}
	if to := c.successor(); to != 0 {
		s.moved = c.now
		c.log.Warn("the disk does not finish a write; another node is to lead", "node", to)
		c.raw.TransferLeader(to)
	}
}

// successor returns the voter that answers and has most of the log, or 0.
func (c *core) successor() (best uint64) {
	match := uint64(0)
	c.raw.WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		if id == c.id || kind != raft.ProgressTypePeer || !c.active(id) {
			return
		}
		if best == 0 || pr.Match > match {
			best, match = id, pr.Match
		}
	})
	return best
}
