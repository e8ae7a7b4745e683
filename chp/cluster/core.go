package cluster

import (
	"fmt"
	"log/slog"
	"runtime"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
	"clustermap/internal/fifo"
	"clustermap/internal/mutate"
)

// A core is a node without goroutines, locks and clocks: messages, ticks and requests in, work
// out. The work stands in queues, which a [Node] gives to one goroutine each, and a simulation
// takes from in any order that its seed says:
//
//	appends   what the disk must have before its responses are delivered   disk.go
//	tasks     what the owner is told, in order                             apply.go
//	parts     what is received of a snapshot                               receive.go
//	pulls     which snapshots to send more of                              send.go
//	out       messages to other nodes
//
// Its owner calls one method at a time.
type core struct {
	id     uint64
	raw    *raft.RawNode
	tail   *tail
	disk   *disk
	log    *slog.Logger
	limits Options
	err    error // why it has failed

	appends fifo.Queue[raftpb.Message]
	tasks   fifo.Queue[task]
	parts   fifo.Queue[*Message]
	pulls   fifo.Queue[*stream]
	out     []*Message

	now     uint64 // ticks
	term    uint64
	vote    uint64
	commit  uint64
	role    raft.StateType
	leader  uint64
	moving  bool   // the term is being handed over, or that is being tried
	leading uint64 // the term in which this node leads and has applied all that came before
	applied uint64 // what the owner has

	members  members // as applied
	pending  pending
	changing *change
	reads    reads
	stall    stall

	cut       *cut // of the map, for the next snapshot that raft sends
	cutting   bool
	streams   []*stream            // to followers
	stream    *receipt             // from a leader, until raft has taken it
	taken     *Message             // the answer to the last part of the last one that was whole
	installs  fifo.Queue[*receipt] // that raft has taken, and the disk not
	partBytes int                  // in parts
	heard     map[uint64]uint64    // when each node was last heard, in ticks

	restoring bool             // the owner is given a snapshot that is in the log: another one has to wait
	held      []raftpb.Message // responses that follow theirs
	told      Status
}

// newCore returns the core of a node whose log and owner are in the state of start.
func newCore(o *Options, d *disk, start *started) (*core, error) {
	c := &core{
		id: o.Node, tail: start.tail, disk: d, log: o.Logger, limits: *o,
		term: start.tail.hard.Term, vote: start.tail.hard.Vote, commit: start.tail.hard.Commit,
		applied: start.applied, members: start.members, heard: map[uint64]uint64{},
	}
	c.reads.init(o.Node)
	c.tail.snapshot = c.snapshot
	var err error
	c.raw, err = raft.NewRawNode(&raft.Config{
		ID: o.Node, ElectionTick: electionTicks, HeartbeatTick: 1,
		Storage: c.tail, Applied: start.applied, AsyncStorageWrites: true,
		MaxSizePerMsg: maxMessageBytes, MaxCommittedSizePerReady: applyBytes,
		MaxInflightMsgs: maxInflight, MaxInflightBytes: maxInflightBytes,
		CheckQuorum: !mutate.ClusterNoQuorumCheck, PreVote: true, ReadOnlyOption: raft.ReadOnlySafe,
		DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: raftLogger{o.Logger},
	})
	if err != nil {
		return nil, err
	}
	c.guard(func() {
		if c.members.alone(c.id) { // it needs to wait for nobody
			_ = c.raw.Campaign()
		}
		c.settle()
	})
	return c, c.err
}

// guard calls a method of raft, and turns a panic into the failure of the node: what a node
// whose disk has lied tells others can contradict what they know.
func (c *core) guard(f func()) {
	if c.err != nil {
		return
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			c.fail(fmt.Errorf("%w: %w", ErrFailed, p))
		default:
			c.fail(fmt.Errorf("%w: %w: %v", ErrFailed, errContradiction, p))
		}
	}()
	f()
}

// fail makes an error permanent.
func (c *core) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.reads.end(err)
	c.changing.end(err)
	c.changing = nil
}

// tick is called at each tenth of the election time-out.
func (c *core) tick() {
	c.guard(func() {
		c.now++
		c.raw.Tick()
		c.stalled()
		c.tickStreams()
		c.askAgain()
		c.settle()
	})
}

// isNew reports whether a message is the first one of a member since this node was opened.
func (c *core) isNew(m *Message) bool {
	_, member := c.members.Addresses[m.From]
	_, heard := c.heard[m.From]
	return member && !heard && m.From != c.id && m.To == c.id
}

// receive takes a message of another node.
func (c *core) receive(m *Message) {
	if m.To != c.id || m.From == c.id {
		return
	}
	c.guard(func() {
		if _, ok := c.members.Addresses[m.From]; ok {
			c.heard[m.From] = c.now
		}
		switch m.Kind {
		case KindRaft:
			if !c.expects(&m.Raft) || len(m.Raft.Entries) > 0 && c.behind() {
				return
			}
			_ = c.raw.Step(m.Raft) // an error is of a message that comes too late
			c.learn(m)
		case KindPart:
			c.receivePart(m)
		case KindAck:
			c.receiveAck(m)
		}
		c.settle()
	})
}

// expects reports whether a message of another node is one that raft takes from others.
func (c *core) expects(m *raftpb.Message) bool {
	switch m.Type {
	case raftpb.MsgApp:
		for i := range m.Entries {
			e := &m.Entries[i]
			if e.Index != m.Index+1+uint64(i) || e.Term > m.Term {
				return false
			}
			if _, err := stored(e); err != nil {
				return false
			}
		}
		return true
	case raftpb.MsgReadIndex:
		return len(m.Entries) == 1
	case raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp,
		raftpb.MsgTimeoutNow, raftpb.MsgReadIndexResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		return len(m.Entries) <= 1
	}
	return false // a snapshot comes in parts, and proposals are not forwarded
}

// behind reports whether the owner has so much to do that this node takes no more entries: they would have to
// stay in memory. Raft sends them again, as it does if the network loses them.
func (c *core) behind() bool {
	return !mutate.ClusterCollect && c.applied < c.commit && c.tail.bytes > 3*c.limits.TailBytes+2*c.limits.RoomBytes
}

// unreachable says that messages to a node were dropped.
func (c *core) unreachable(id uint64) {
	c.guard(func() {
		c.raw.ReportUnreachable(id)
		c.settle()
	})
}

// propose appends an entry to the log, if this node leads in a term.
func (c *core) propose(term uint64, e *commit.Entry) (Position, error) {
	size := headBytes + e.RecordBytes()
	switch {
	case c.err != nil:
		return Position{}, c.err
	case size > maxEntryBytes:
		return Position{}, fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
	case c.pending.bytes >= 2*c.limits.RoomBytes:
		return Position{}, ErrFull
	case c.role != raft.StateLeader || c.term != term || c.leading != term || c.moving:
		return Position{}, c.notLeader()
	}
	all := []raftpb.Entry{{Data: appendData(make([]byte, 0, size), e)}}
	if err := c.append(all); err != nil {
		return Position{}, err
	}
	at := Position{all[0].Index, all[0].Term}
	c.pending.add(at, size+entryBytes)
	c.guard(c.settle)
	return at, c.err
}

// append proposes entries. Raft sets their indexes and terms.
func (c *core) append(all []raftpb.Entry) error {
	err := c.err
	c.guard(func() {
		err = c.raw.Step(raftpb.Message{Type: raftpb.MsgProp, From: c.id, Entries: all})
	})
	if err != nil || c.err != nil || all[0].Index == 0 {
		return c.notLeader() // it hands its term over
	}
	return nil
}

func (c *core) notLeader() error {
	if c.err != nil {
		return c.err
	}
	e := &NotLeaderError{Node: c.id, Term: c.term, Leader: c.leader}
	if e.Leader == c.id { // it hands its term over, or does not have yet what came before that
		e.Leader = 0
	}
	return e
}

// settle takes what raft has ready, until there is nothing.
func (c *core) settle() {
	for c.raw.HasReady() {
		rd := c.raw.Ready()
		if rd.SoftState != nil {
			c.role, c.leader = rd.RaftState, rd.Lead
		}
		if !raft.IsEmptyHardState(rd.HardState) {
			c.term, c.vote, c.commit = rd.Term, rd.Vote, rd.Commit
		}
		for _, r := range rd.ReadStates {
			c.answered(r.RequestCtx, r.Index)
		}
		for i := range rd.Messages {
			c.route(&rd.Messages[i])
		}
	}
	if c.role != raft.StateLeader || c.leading != c.term {
		if c.leading != 0 {
			c.leading = 0
			c.changing.end(ErrUnknown)
			c.changing = nil
		}
	}
	if c.role != raft.StateLeader {
		c.endStreams()
	}
	c.moving = c.role == raft.StateLeader && c.raw.BasicStatus().LeadTransferee != raft.None
	c.tell()
}

// route puts a message where it belongs.
func (c *core) route(m *raftpb.Message) {
	switch m.To {
	case raft.LocalAppendThread:
		if m.Snapshot != nil {
			c.stream.accepted = true
			c.installs.Push(c.stream)
			c.stream = nil
		}
		c.appends.Push(*m)
		if len(m.Entries) > 0 {
			c.stall.begun(c.now)
		}
		if mutate.ClusterApplyEarly && len(m.Entries) > 0 {
			c.tasks.Push(task{entries: m.Entries})
		}
	case raft.LocalApplyThread:
		c.tasks.Push(task{entries: m.Entries, responses: m.Responses})
	case c.id:
		_ = c.raw.Step(*m)
	default:
		if m.Type == raftpb.MsgSnap {
			c.send(m)
			return
		}
		out := &Message{Kind: KindRaft, From: c.id, To: m.To, Raft: *m}
		c.hint(out)
		c.out = append(c.out, out)
	}
}

// stored says that what a message of raft has for the disk is on it.
func (c *core) stored(m *raftpb.Message) {
	c.guard(func() {
		if m.Snapshot != nil {
			c.tail.reset(Position{m.Snapshot.Metadata.Index, m.Snapshot.Metadata.Term})
		}
		if len(m.Entries) > 0 {
			c.tail.append(m.Entries)
			c.stall.ended()
		}
		switch {
		case m.Snapshot != nil:
			c.restoring = true
			c.tasks.Push(task{restore: c.installs.Pop(), responses: m.Responses})
		case c.restoring:
			c.held = append(c.held, m.Responses...)
		default:
			c.deliver(m.Responses)
		}
		c.trim()
		c.settle()
	})
}

// deliver delivers the responses of work that is done.
func (c *core) deliver(all []raftpb.Message) {
	for i := range all {
		c.route(&all[i])
	}
}

// trim removes entries that no follower needs any more from memory.
func (c *core) trim() {
	limit, upTo := c.limits.TailBytes, c.applied
	if len(c.streams) > 0 { // what follows a snapshot that is being sent
		limit *= 2
	}
	c.tail.trim(limit, upTo)
}

// has says that the owner has everything up to an entry.
func (c *core) has(at Position) {
	c.applied = max(c.applied, at.Index)
	if c.role == raft.StateLeader && at.Term == c.term && c.leading != c.term {
		c.leading = c.term
		c.ask()
	}
	c.reads.has(c.applied)
}

// raftLogger passes what raft says to a logger.
type raftLogger struct{ to *slog.Logger }

func (l raftLogger) Debug(...any)          {}
func (l raftLogger) Debugf(string, ...any) {}
func (l raftLogger) Info(...any)           {}
func (l raftLogger) Infof(string, ...any)  {}
func (l raftLogger) Warning(v ...any)      { l.to.Warn(fmt.Sprint(v...)) }
func (l raftLogger) Error(v ...any)        { l.to.Error(fmt.Sprint(v...)) }
func (l raftLogger) Fatal(v ...any)        { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panic(v ...any)        { panic(fmt.Sprint(v...)) }

func (l raftLogger) Warningf(format string, v ...any) { l.to.Warn(fmt.Sprintf(format, v...)) }
func (l raftLogger) Errorf(format string, v ...any)   { l.to.Error(fmt.Sprintf(format, v...)) }
func (l raftLogger) Fatalf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) }
func (l raftLogger) Panicf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) }
