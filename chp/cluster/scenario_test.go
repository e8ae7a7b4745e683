package cluster

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// scenario begins a simulation of three nodes, and returns the leader.
func scenario(t *testing.T) (*sim, *simNode) {
	t.Cleanup(restoreRandom())
	s := newSim(1, 3, 0)
	n := s.elected(t, nil)
	return s, n
}

// elected runs until a node leads that is not another one.
func (s *sim) elected(t *testing.T, not *simNode) *simNode {
	t.Helper()
	for range 2000 {
		s.run(1, nil)
		for _, n := range s.leading() {
			if n != not {
				return n
			}
		}
	}
	t.Fatalf("nobody leads\n%s", s.transcript(40))
	return nil
}

// ends ends a scenario like a simulation.
func (s *sim) ends(t *testing.T) {
	t.Helper()
	s.heal()
	if s.failed != "" {
		t.Fatalf("VIOLATED %s\n%s", s.failed, s.transcript(60))
	}
}

// TestStalledDiskEndsATerm shows that a leader whose disk does not finish a write hands its term over,
// although it hears its followers.
func TestStalledDiskEndsATerm(t *testing.T) {
	s, n := scenario(t)
	n.disk.stalled = true
	s.propose(n, 1)
	next := s.elected(t, n)
	s.propose(next, 3)
	s.run(20, nil)
	if len(next.owner.values) < 3 {
		t.Errorf("%d values are committed without the disk that is stalled, want 3", len(next.owner.values))
	}
	s.ends(t)
}

// TestHandOver shows that a leader hands its term over without a pause: before an election time-out is
// over.
func TestHandOver(t *testing.T) {
	s, n := scenario(t)
	s.propose(n, 5)
	s.run(20, nil)
	if err := n.core.move(0); err != nil {
		t.Fatal(err)
	}
	begin := s.now
	s.elected(t, n)
	if took := s.now - begin; took >= electionTicks*10 {
		t.Errorf("it took %d tenths of a tick", took)
	}
	s.ends(t)
}

// TestDeafLeaderEndsItsTerm shows that a leader that is heard and hears nobody does not lead for long
// (check-quorum), and that its reads have no answer meanwhile.
func TestDeafLeaderEndsItsTerm(t *testing.T) {
	s, n := scenario(t)
	for _, o := range s.nodes {
		if o != n {
			s.net.cut[[2]uint64{o.id, n.id}] = true
		}
	}
	answered := false
	n.core.read(func(uint64, error) { answered = true })
	next := s.elected(t, n)
	if answered || n.status.Leading {
		t.Errorf("the deaf leader has answered a read: %v; leads: %v", answered, n.status.Leading)
	}
	s.propose(next, 2)
	s.ends(t)
}

// TestReturnDoesNotDisturb shows that a node that comes back after it was alone does not end the
// leader's term (pre-vote).
func TestReturnDoesNotDisturb(t *testing.T) {
	s, n := scenario(t)
	other := s.nodes[n.id%3]
	for _, o := range s.nodes {
		s.net.cut[[2]uint64{o.id, other.id}], s.net.cut[[2]uint64{other.id, o.id}] = true, true
	}
	s.run(3000, nil)
	term := n.core.term
	s.net.heal()
	s.run(500, nil)
	if !n.status.Leading || n.core.term != term {
		t.Errorf("node %d leads: %v, in term %d, was %d", n.id, n.status.Leading, n.core.term, term)
	}
	s.ends(t)
}

// TestChangeNeedsBothMajorities shows that a change of the members is refused if too few of those before it answer, as
// it is if too few would be left: it would wait, and be made long after.
func TestChangeNeedsBothMajorities(t *testing.T) {
	s, n := scenario(t)
	voter, learner := s.nodes[n.id%3], s.nodes[(n.id+1)%3]
	ask := func(c Change) (err error) {
		err = ErrUnknown
		n.core.change([]Change{c}, func(result error) { err = result })
		s.run(50, nil)
		return err
	}
	if err := ask(Change{Kind: ChangeDemote, Node: learner.id}); err != nil {
		t.Fatal(err)
	}
	n.core.heard[voter.id] = 0
	n.core.now += electionTicks + 1
	for _, c := range []Change{{Kind: ChangeRemove, Node: voter.id}, {Kind: ChangeRemove, Node: learner.id}, {Kind: ChangeRemove, Node: n.id}} {
		n.core.heard[voter.id] = 0
		var e *MajorityError
		if err := ask(c); !errors.As(err, &e) || e.Missing[0] != voter.id {
			t.Errorf("remove %d: %v; want an error that node %d is missing", c.Node, err, voter.id)
		}
	}
	if err := ask(Change{Kind: ChangeRemove, Node: voter.id}); err != nil {
		t.Errorf("the node that has answered is not removed: %v", err)
	}
	s.ends(t)
}

// TestReadsShareARound shows that reads which wait are answered by one question to a majority.
func TestReadsShareARound(t *testing.T) {
	s, n := scenario(t)
	s.propose(n, 1)
	answered := 0
	before := n.core.reads.rounds
	for range 1000 {
		n.core.read(func(_ uint64, err error) {
			if err == nil {
				answered++
			}
		})
	}
	s.run(50, nil)
	if rounds := n.core.reads.rounds - before; answered != 1000 || rounds > 2 {
		t.Errorf("%d answers in %d rounds, want 1000 in 2", answered, rounds)
	}
	s.ends(t)
}

// TestFailedHandOver shows that a leader that cannot hand its term over says so, and goes on in it.
func TestFailedHandOver(t *testing.T) {
	s, n := scenario(t)
	to := s.nodes[n.id%3]
	to.stopped = true
	s.propose(n, 1)
	term := n.status.Term
	if err := n.core.move(to.id); err != nil {
		t.Fatal(err)
	}
	s.run(5, nil)
	if n.status.Leading {
		t.Error("it leads while it hands its term over")
	}
	if _, err := n.core.propose(term, &commit.Entry{Records: make([]byte, 8)}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("proposed: %v", err)
	}
	s.elected(t, nil)
	if !n.status.Leading || n.status.Term != term {
		t.Errorf("it leads: %v, in term %d, was %d", n.status.Leading, n.status.Term, term)
	}
	s.propose(n, 1)
	s.ends(t)
}

// TestSlowOwnerIsBounded shows that a node whose owner does not take what is committed does not collect the log
// in memory, and gets the rest when it does.
func TestSlowOwnerIsBounded(t *testing.T) {
	s, n := scenario(t)
	other := s.nodes[n.id%3]
	other.stuck = true
	for s.value < 2000 && s.failed == "" {
		s.propose(n, 4)
		s.run(2, s.checkBounds)
	}
	if len(n.owner.values) < 1000 {
		t.Errorf("%d values are committed without it", len(n.owner.values))
	}
	other.stuck = false
	s.ends(t)
}

// TestLostLogIsNoticed shows that a node whose disk has lost what it had flushed ends with an error that says what
// to do, as soon as the leader says that this is committed, and that the others go on.
func TestLostLogIsNoticed(t *testing.T) {
	s, n := scenario(t)
	other := s.nodes[n.id%3]
	s.propose(n, 4)
	s.run(30, nil)
	other.disk.lies, other.lied = true, true
	l := &other.disk.flushed
	l.entries = l.entries[:len(l.entries)-2]
	other.disk.now = l.clone()
	other.crash(true)
	other.start()
	for range 200 {
		s.run(1, nil)
		if other.core.err != nil {
			break
		}
	}
	if err := other.core.err; !errors.Is(err, ErrFailed) || !errors.Is(err, errContradiction) {
		t.Errorf("the node: %v", err)
	}
	s.ends(t)
}

// TestVoteIsKept shows that a node that has answered a vote and loses power does not vote again in that term.
func TestVoteIsKept(t *testing.T) {
	t.Cleanup(restoreRandom())
	s := newSim(1, 3, 0)
	n := s.nodes[0]
	ask := func(from uint64) (answers []raftpb.Message) {
		n.core.receive(&Message{Kind: KindRaft, From: from, To: 1, Raft: raftpb.Message{Type: raftpb.MsgVote, From: from, To: 1, Term: 5, Index: 1, LogTerm: 1}})
		for steps := n.ready(); len(steps) > 0 && len(n.core.out) == 0; steps = n.ready() {
			steps[0]()
		}
		for _, m := range n.core.out {
			answers = append(answers, m.Raft)
		}
		return answers
	}
	if a := ask(2); len(a) != 1 || a[0].Type != raftpb.MsgVoteResp || a[0].Reject {
		t.Fatalf("asked by node 2 it answers %v", a)
	}
	n.crash(true)
	n.start()
	if a := ask(3); len(a) != 1 || a[0].Type != raftpb.MsgVoteResp || !a[0].Reject {
		t.Errorf("VIOLATED vote: node 1 votes in a term twice: asked by node 3 it answers %v", a)
	}
}
