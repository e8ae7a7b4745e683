package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A Change is a change of the members. Several in one are made at once, by joint consensus: as
// long as it lasts, a majority of both sets of voters is needed.
type Change struct {
	Kind    ChangeKind
	Node    uint64
	Address string // of a node that is added
}

// ChangeKind is what a change does with a node.
type ChangeKind byte

// Kinds of changes.
const (
	// ChangeAdd adds a node without a vote. A node begins as that, so that it has the state
	// before a majority can depend on it.
	ChangeAdd ChangeKind = iota + 1
	// ChangePromote gives a learner a vote.
	ChangePromote
	// ChangeDemote takes a vote away.
	ChangeDemote
	// ChangeRemove removes a node.
	ChangeRemove
)

// change is a change under way.
type change struct {
	at   Position
	done func(error)
}

func (g *change) end(err error) {
	if g != nil {
		g.done(err)
	}
}

// addresses adds the addresses that came with a change.
func (m *members) addresses(context []byte) {
	var more map[uint64]string
	if len(context) == 0 || json.Unmarshal(context, &more) != nil {
		return
	}
	if m.Addresses == nil {
		m.Addresses = map[uint64]string{}
	}
	for id, a := range more {
		m.Addresses[id] = a
	}
}

// after returns the members after changes, which it checks.
func (m *members) after(all []Change) (members, error) {
	n := m.clone()
	no := func(c Change, why string) (members, error) {
		return n, fmt.Errorf("%w: node %d %s", ErrMember, c.Node, why)
	}
	for _, c := range all {
		voter, learner := slices.Index(n.Conf.Voters, c.Node), slices.Index(n.Conf.Learners, c.Node)
		switch {
		case c.Node == 0:
			return no(c, "is no node")
		case c.Kind == ChangeAdd && (voter >= 0 || learner >= 0):
			return no(c, "is a member")
		case c.Kind == ChangeAdd && slices.Contains(n.Gone, c.Node):
			return no(c, "was removed, and a number is not used again")
		case c.Kind == ChangeAdd && (c.Address == "" || len(c.Address) > maxAddress):
			return no(c, "has no valid address")
		case c.Kind == ChangeAdd && len(n.all()) >= maxMembers:
			return no(c, "is one too many")
		case c.Kind == ChangeAdd:
			n.Conf.Learners = append(n.Conf.Learners, c.Node)
		case c.Kind == ChangePromote && learner < 0:
			return no(c, "is no learner")
		case c.Kind == ChangePromote:
			n.Conf.Learners = slices.Delete(n.Conf.Learners, learner, learner+1)
			n.Conf.Voters = append(n.Conf.Voters, c.Node)
		case c.Kind == ChangeDemote && voter < 0:
			return no(c, "is no voter")
		case c.Kind == ChangeDemote:
			n.Conf.Voters = slices.Delete(n.Conf.Voters, voter, voter+1)
			n.Conf.Learners = append(n.Conf.Learners, c.Node)
		case c.Kind == ChangeRemove && voter >= 0:
			n.Conf.Voters = slices.Delete(n.Conf.Voters, voter, voter+1)
		case c.Kind == ChangeRemove && learner >= 0:
			n.Conf.Learners = slices.Delete(n.Conf.Learners, learner, learner+1)
		default:
			return no(c, "is no member")
		}
	}
	return n, nil
}

// raft returns changes as raft wants them.
func raftChange(all []Change) (cc raftpb.ConfChangeV2, err error) {
	addresses := map[uint64]string{}
	for _, c := range all {
		one := raftpb.ConfChangeSingle{NodeID: c.Node}
		switch c.Kind {
		case ChangeAdd:
			one.Type = raftpb.ConfChangeAddLearnerNode
			addresses[c.Node] = c.Address
		case ChangePromote:
			one.Type = raftpb.ConfChangeAddNode
		case ChangeDemote:
			one.Type = raftpb.ConfChangeAddLearnerNode
		case ChangeRemove:
			one.Type = raftpb.ConfChangeRemoveNode
		}
		cc.Changes = append(cc.Changes, one)
	}
	if len(addresses) > 0 {
		cc.Context, err = json.Marshal(addresses)
	}
	return cc, err
}

// active reports whether a node has answered within an election time-out.
func (c *core) active(id uint64) bool {
	heard, ok := c.heard[id]
	return id == c.id || ok && c.now-heard <= electionTicks
}

// change begins to change the members. done is called once.
func (c *core) change(all []Change, done func(error)) {
	err := c.begin(all, done)
	if err != nil {
		done(err)
	}
}

func (c *core) begin(all []Change, done func(error)) error {
	switch {
	case c.role != raft.StateLeader || c.leading != c.term:
		return c.notLeader()
	case c.changing != nil || len(c.members.Conf.VotersOutgoing) > 0:
		return ErrBusy
	}
	next, err := c.members.after(all)
	if err != nil {
		return err
	}
	for _, m := range []*members{&c.members, &next} { // the majority before commits the change, and that after it goes on
		if err := c.majority(m); err != nil {
			return err
		}
	}
	if err := c.caughtUp(all); err != nil {
		return err
	}
	cc, err := raftChange(all)
	if err != nil {
		return err
	}
	data, err := cc.Marshal()
	if err != nil {
		return err
	}
	entries := []raftpb.Entry{{Type: raftpb.EntryConfChangeV2, Data: data}}
	if err := c.append(entries); err != nil {
		return err
	}
	if entries[0].Type != raftpb.EntryConfChangeV2 { // raft has put an empty entry in its place
		c.guard(c.settle)
		return ErrBusy
	}
	c.changing = &change{Position{entries[0].Index, entries[0].Term}, done}
	c.guard(c.settle)
	return nil
}

// majority returns an error if too few voters of some members answer.
func (c *core) majority(of *members) error {
	need := len(of.Conf.Voters)/2 + 1
	e := &MajorityError{Need: need}
	for _, id := range of.Conf.Voters {
		if !c.active(id) {
			e.Missing = append(e.Missing, id)
			e.Names = append(e.Names, c.members.Addresses[id])
		}
	}
	if n := len(of.Conf.Voters); n == 0 || n-len(e.Missing) < need {
		return e
	}
	return nil
}

// caughtUp returns an error if a node that gets a vote does not have the log yet.
func (c *core) caughtUp(all []Change) error {
	behind := uint64(0)
	c.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		promote := slices.ContainsFunc(all, func(g Change) bool { return g.Kind == ChangePromote && g.Node == id })
		if promote && (pr.State != tracker.StateReplicate || !c.active(id)) {
			behind = id
		}
	})
	if behind != 0 {
		return fmt.Errorf("%w: node %d does not have the log yet", ErrMember, behind)
	}
	return nil
}

// changed is called when the owner has a change of the members.
func (c *core) changed(at Position) {
	if g := c.changing; g != nil && (at == g.at || at.Index > g.at.Index) && len(c.members.Conf.VotersOutgoing) == 0 {
		c.changing = nil
		g.done(nil)
	}
}

// list returns the members.
func (c *core) list() []Member {
	var all []Member
	match := map[uint64]uint64{}
	leads := c.role == raft.StateLeader
	if leads {
		c.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) { match[id] = pr.Match })
	}
	for _, id := range c.members.all() {
		silence := time.Duration(-1)
		if id == c.id {
			silence = 0
		} else if at, ok := c.heard[id]; ok {
			silence = time.Duration(c.now-at) * (c.limits.ElectionTimeout / electionTicks)
		}
		all = append(all, Member{
			Node: id, Address: c.members.Addresses[id], Learner: !c.members.voter(id), Active: leads && c.active(id), Silence: silence, Match: match[id],
		})
	}
	return all
}

// move hands the term over to a node, or to the one that has most of the log if it is 0.
func (c *core) move(to uint64) error {
	if c.role != raft.StateLeader {
		return c.notLeader()
	}
	if to == 0 {
		if to = c.successor(); to == 0 {
			return fmt.Errorf("%w: no other voter answers", ErrMajority)
		}
	}
	if !slices.Contains(c.members.Conf.Voters, to) {
		return fmt.Errorf("%w: node %d has no vote", ErrMember, to)
	}
	c.guard(func() {
		c.raw.TransferLeader(to)
		c.settle()
	})
	return c.err
}
