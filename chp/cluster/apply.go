package cluster

import (
	"fmt"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A task is something that the owner is told or asked.
type task struct {
	entries   []raftpb.Entry   // that are committed
	restore   *receipt         // a snapshot that is in the log
	responses []raftpb.Message // delivered afterwards

	status *Status
	cut    bool // a copy of the state is wanted
	save   func(*cut, error)
}

// An applier runs tasks, one after the other.
type applier struct {
	core  *core
	mu    sync.Locker // of the core; the owner is called without it
	owner Owner
	disk  *disk
	peers func(map[uint64]string) // the addresses have changed

	last  Position // of the last entry that the owner has
	batch []Committed
	lost  []Position
}

// run runs a task.
func (a *applier) run(t *task) {
	switch {
	case t.status != nil:
		a.owner.Changed(*t.status)
	case t.cut:
		a.image(t.save)
	case t.restore != nil:
		a.restore(t)
	default:
		a.entries(t.entries)
		a.done(t.responses)
	}
}

// entries tells the owner what is committed.
func (a *applier) entries(all []raftpb.Entry) {
	a.mu.Lock()
	a.batch, a.lost = a.batch[:0], a.lost[:0]
	for i := range all {
		e := &all[i]
		if e.Index <= a.last.Index {
			continue
		}
		at := Position{e.Index, e.Term}
		own := a.core.pending.committed(at, func(p Position) { a.lost = append(a.lost, p) })
		if len(a.lost) > 0 { // behind what is in the batch
			a.mu.Unlock()
			a.pass()
			a.mu.Lock()
		}
		c, err := stored(e)
		if err != nil {
			a.core.fail(fmt.Errorf("%w: %w", ErrFailed, err))
			break
		}
		a.last = at
		switch c.Kind {
		case KindEmpty:
		case KindChange:
			a.mu.Unlock()
			a.pass()
			a.mu.Lock()
			a.change(e)
		default:
			a.batch = append(a.batch, Committed{Entry: c, Own: own})
		}
	}
	a.mu.Unlock()
	a.pass()
}

// pass passes what has been gathered to the owner: first what is committed, which an owner must not take for lost.
func (a *applier) pass() {
	if len(a.batch) > 0 {
		a.owner.Committed(a.batch)
	}
	if len(a.lost) > 0 {
		a.owner.Lost(a.lost, true)
	}
	clear(a.batch)
	a.batch, a.lost = a.batch[:0], a.lost[:0]
}

// done tells raft that the owner has all up to the last entry.
func (a *applier) done(responses []raftpb.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.core
	c.guard(func() {
		c.has(a.last)
		c.deliver(responses)
		c.trim()
		c.settle()
	})
}

// change changes the members. The caller holds a.mu.
func (a *applier) change(e *raftpb.Entry) {
	c := a.core
	c.guard(func() {
		var cc raftpb.ConfChangeV2
		if err := cc.Unmarshal(e.Data); err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrFailed, err))
			return
		}
		next := c.members.clone()
		next.Conf = *c.raw.ApplyConfChange(cc)
		next.Index = e.Index
		next.addresses(cc.Context)
		next.prune(&c.members)
		c.members = next
		a.mu.Unlock()
		err := a.disk.joined(&next)
		a.peers(next.Addresses)
		a.mu.Lock()
		if err != nil {
			c.fail(err)
			return
		}
		c.changed(Position{e.Index, e.Term})
		c.settle()
	})
}

// restore gives the owner a snapshot.
func (a *applier) restore(t *task) {
	r := t.restore
	err := a.owner.Restore(&Snapshot{At: r.at(), Sequence: r.sequence, log: a.disk.log})
	a.last = r.at()
	a.mu.Lock()
	c := a.core
	if err != nil {
		c.fail(fmt.Errorf("%w: snapshot: %w", ErrFailed, err))
	}
	c.members = r.members.clone()
	a.lost = a.lost[:0]
	c.pending.skipped(a.last.Index, func(p Position) { a.lost = append(a.lost, p) })
	held := c.held
	c.held, c.restoring = nil, false
	a.mu.Unlock()
	if len(a.lost) > 0 {
		a.owner.Lost(a.lost, false)
		a.lost = a.lost[:0]
	}
	a.peers(r.members.Addresses)
	a.done(append(t.responses, held...))
}

// image takes a copy of the state, for a follower or for a checkpoint.
func (a *applier) image(save func(*cut, error)) {
	image, err := a.owner.Image()
	a.mu.Lock()
	c := a.core
	var k *cut
	if err == nil {
		k = &cut{image: image, at: a.last, members: c.members.clone(), born: c.now}
		c.mislabel(k)
	}
	if save == nil {
		c.cutting = false
		if err != nil {
			c.fail(fmt.Errorf("%w: image: %w", ErrFailed, err))
		} else {
			c.cut.release()
			c.cut = k
		}
	}
	a.mu.Unlock()
	if save != nil {
		save(k, err)
	}
}

// tell queues a change of the status.
func (c *core) tell() {
	if s := c.status(); s != c.told {
		c.told = s
		c.tasks.Push(task{status: &s})
	}
}

// status returns who leads.
func (c *core) status() Status {
	s := Status{Node: c.id, Term: c.term, Leader: c.leader, Role: RoleFollower}
	switch c.role {
	case raft.StateLeader:
		s.Role, s.Leading = RoleLeader, c.leading == c.term && !c.moving
	case raft.StateCandidate, raft.StatePreCandidate:
		s.Role = RoleCandidate
	default:
		if !c.members.voter(c.id) {
			s.Role = RoleLearner
		}
	}
	return s
}
