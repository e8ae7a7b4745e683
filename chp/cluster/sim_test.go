package cluster

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"clustermap/chp/commit"
)

// A sim is a cluster in one goroutine: nodes without goroutines, disks that lose what was not
// flushed, a network that loses, delays, repeats and reorders, and a clock. All chance comes
// from a seed, so that a run can be repeated exactly. What a node would do in goroutines is
// done in small steps, of which the seed chooses the next.
type sim struct {
	seed   uint64
	random *rand.Rand
	now    int // steps of the clock: tenths of a tick
	nodes  []*simNode
	net    simNet
	faults bool
	notes  []string
	trace  bool   // messages are noted
	failed string // which check has failed, and how

	value     uint64              // last proposed
	chosen    []uint64            // the values that some node has applied, in order
	chosenAt  []Position          // where they stand
	chosenSum []uint32            // of their bytes
	committed uint64              // highest index that some node has applied
	leaders   map[uint64]uint64   // who leads, by term
	proposals map[simKey]*simFate // by node and position
	confs     []members           // in order
	counts    map[string]int      // what has happened
	most      map[string]int      // what a node has had in memory
}

type simKey struct {
	node, start uint64
	at          Position
}

type simFate struct {
	value uint64
	told  string
}

// What the nodes keep in memory: little, so that much of what a large cluster seldom does happens here.
const (
	simTail = 4000
	simRoom = 3000
)

// A simNode is a machine.
type simNode struct {
	id      uint64
	sim     *sim
	disk    simDisk
	up      bool
	starts  uint64
	owner   *simOwner
	core    *core
	applier applier
	status  Status
	written []raftpb.Message
	clock   int       // when the next tick is
	rate    int       // steps of a tick
	stopped bool      // its goroutines do nothing
	slow    bool      // its owner
	stuck   bool      // its owner, which does nothing at all
	member  bool      // is to take part
	gone    bool      // was removed
	lied    bool      // its disk has lost what it had flushed
	files   *simFiles // of its disk; nil if it is only simulated
}

func (n *simNode) String() string { return fmt.Sprintf("node %d", n.id) }

type nothing struct{}

func (nothing) Lock()   {}
func (nothing) Unlock() {}

var _ sync.Locker = nothing{}

// seeded is a source of random bytes: raft takes its time-outs from crypto/rand.
type seeded struct{ *rand.ChaCha8 }

func (s seeded) Read(b []byte) (int, error) { return s.ChaCha8.Read(b) }

// restoreRandom returns a function that ends what newSim does to crypto/rand.
func restoreRandom() func() {
	r := crand.Reader
	return func() { crand.Reader = r }
}

func newSim(seed uint64, nodes, spare int, setup ...func(*simNode)) *sim {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	source := rand.NewChaCha8(key)
	s := &sim{
		seed: seed, random: rand.New(source), faults: true,
		leaders: map[uint64]uint64{}, proposals: map[simKey]*simFate{}, counts: map[string]int{}, most: map[string]int{},
	}
	key[31] = 1
	crand.Reader = seeded{rand.NewChaCha8(key)}
	s.net.sim = s
	for i := range nodes + spare {
		n := &simNode{id: uint64(i + 1), sim: s, member: i < nodes, rate: 10}
		n.disk.random = s.random
		for _, set := range setup {
			set(n)
		}
		s.nodes = append(s.nodes, n)
	}
	s.net.init()
	for _, n := range s.nodes {
		if n.member {
			n.start()
		}
	}
	return s
}

// note adds a line to the transcript.
func (s *sim) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf("%7d  ", s.now)+fmt.Sprintf(format, args...))
}

// fail ends the simulation.
func (s *sim) fail(check, format string, args ...any) {
	if s.failed == "" {
		s.failed = check + ": " + fmt.Sprintf(format, args...)
		s.note("FAILED %s", s.failed)
	}
}

// transcript returns the end of the notes.
func (s *sim) transcript(lines int) string {
	return strings.Join(s.notes[max(0, len(s.notes)-lines):], "\n")
}

func (s *sim) chance(n int) bool { return s.random.IntN(n) == 0 }

// start starts a node that is down.
func (n *simNode) start() {
	s := n.sim
	n.starts++
	n.owner = &simOwner{sim: s, node: n}
	n.status = Status{}
	n.written = nil
	n.up, n.stopped = true, false
	n.clock = s.now + 1 + s.random.IntN(n.rate)
	o := Options{
		Node: n.id, Cluster: ID{1}, Peers: s.firstPeers(n), Join: int(n.id) > s.net.first,
		Policy: commit.Always(), TailBytes: simTail, RoomBytes: simRoom, Owner: n.owner, Transport: &simTransport{},
	}
	if err := o.check(); err != nil {
		s.fail("start", "%v: %v", n, err)
		return
	}
	o.Logger = slog.New(slog.NewTextHandler(noteWriter{n}, &slog.HandlerOptions{Level: slog.LevelError}))
	d := &disk{log: &simOpen{&n.disk}, store: &simMeta{&n.disk}, always: true}
	var err error
	if n.files != nil {
		if d, err = n.files.open(n); err != nil && n.files.damage == "" {
			s.fail("start", "%v: %v", n, err)
			return
		}
	}
	var st *started
	if err == nil {
		st, err = begin(&o, d)
	}
	if err != nil && n.files != nil && n.files.damage != "" {
		n.files.refused = err
		s.note("%v: refuses to start: %v", n, err)
		n.up = false
		n.files.close()
		return
	}
	if errors.Is(err, errSimDisk) {
		s.note("%v: cannot start: %v", n, err)
		n.up = false
		return
	}
	if err != nil {
		s.fail("start", "%v: %v", n, err)
		return
	}
	n.disk.flush() // as Replay does
	n.core, err = newCore(&o, d, st)
	if err != nil {
		s.fail("start", "%v: %v", n, err)
		return
	}
	n.applier = applier{core: n.core, mu: nothing{}, owner: n.owner, disk: d, peers: func(map[uint64]string) {}, last: st.last}
	s.note("%v: started, applied %d, last %d", n, st.applied, n.disk.now.last())
}

// firstPeers returns what a node is started with.
func (s *sim) firstPeers(n *simNode) map[uint64]string {
	all := map[uint64]string{}
	for i := range s.net.first {
		all[uint64(i+1)] = fmt.Sprint("sim-", i+1)
	}
	return all
}

type noteWriter struct{ n *simNode }

func (w noteWriter) Write(b []byte) (int, error) {
	w.n.sim.note("%v: %s", w.n, bytes.TrimSpace(b))
	return len(b), nil
}

type simTransport struct{}

func (simTransport) Start(func(*Message)) error { return nil }
func (simTransport) Peers(map[uint64]string)    {}
func (simTransport) Send(*Message) bool         { return true }
func (simTransport) Close() error               { return nil }

// crash ends a node. If power is lost, so is what was not flushed.
func (n *simNode) crash(power bool) {
	keep := 0
	power = power && n.files == nil // package durable simulates what a loss of power does to files
	if !power {
		keep = 1 << 20
	} else if n.sim.chance(2) {
		keep = n.sim.random.IntN(4)
	}
	n.sim.note("%v: crashes, power lost %v, keeps %d entries", n, power, keep)
	n.up = false
	n.core.endStreams()
	if power && n.disk.lies {
		n.exposed()
	}
	n.disk.crash(keep)
	if n.files != nil {
		n.files.kill(n)
	}
	n.sim.counts["crash"]++
}

// exposed lets a disk that lies lose what it has said to have flushed, as far as the promise covers that:
// a majority without this node must have it. Otherwise a majority could elect a leader that does not have
// what was acknowledged; nobody can notice that, so nothing is promised.
func (n *simNode) exposed() {
	s, d := n.sim, &n.disk
	last := d.flushed.last()
	if d.really.begin == d.flushed.begin && d.really.last() < last && s.others(n, func(o *simNode) bool {
		return o.disk.flushed.has(last, d.flushed.entries[last-d.flushed.begin-1].Epoch)
	}) {
		s.note("%v: its disk had lied: it loses entries %d to %d, which were flushed", n, d.really.last()+1, last)
		d.flushed = d.really.clone()
		d.now = d.really.clone()
		n.lied = true
		s.counts["lied"]++
	}
	// A vote that is forgotten matters as long as a majority could elect somebody else in its term.
	if now, old := d.meta, d.realMeta; old != nil && (old.Term != now.Term || old.Vote != now.Vote) && s.others(n, func(o *simNode) bool {
		m := o.disk.meta
		return m != nil && (m.Term > now.Term || m.Term == now.Term && m.Vote == now.Vote && m.Vote != n.id && m.Vote != 0)
	}) {
		s.note("%v: its disk had lied: it forgets term %d, vote %d", n, now.Term, now.Vote)
		c := *now
		c.Term, c.Vote = old.Term, old.Vote
		d.meta = &c
		n.lied = true
		s.counts["lied"]++
	}
}

// others reports whether something holds of a majority of the first nodes, without one.
func (s *sim) others(not *simNode, holds func(*simNode) bool) bool {
	have := 0
	for _, o := range s.nodes[:s.net.first] {
		if o != not && holds(o) {
			have++
		}
	}
	return have >= s.net.first/2+1
}

// ends is called when a node has failed, which is right if its disk is the reason.
func (n *simNode) ends() {
	s, err := n.sim, n.core.err
	switch {
	case errors.Is(err, errSimDisk) && errors.Is(err, ErrFailed):
		s.note("%v: ends: %v", n, err)
		s.counts["ended"]++
		n.crash(s.chance(2))
	case n.lied && errors.Is(err, ErrFailed): // others know that it had what it does not have
		s.note("%v: ends, and does not come back: %v", n, err)
		s.counts["noticed"]++
		n.member, n.gone = false, true
		n.crash(false)
	default:
		s.fail("engine", "%v: %v", n, err)
	}
}

// ready returns the steps that a node can do.
func (n *simNode) ready() (steps []func()) {
	if !n.up || n.stopped {
		return nil
	}
	c := n.core
	if c.err != nil {
		n.ends()
		return nil
	}
	if c.appends.Len() > 0 && !n.disk.stalled {
		steps = append(steps, n.stepWrite)
	}
	if len(n.written) > 0 && !n.disk.stalled {
		steps = append(steps, n.stepFlush)
	}
	if c.tasks.Len() > 0 && !n.stuck && (!n.slow || n.sim.chance(20)) {
		steps = append(steps, n.stepApply)
	}
	if c.parts.Len() > 0 && !n.disk.stalled {
		steps = append(steps, func() { c.take(c.parts.Pop(), nothing{}) })
	}
	if c.pulls.Len() > 0 {
		steps = append(steps, func() { c.fill(c.pulls.Pop(), nothing{}) })
	}
	if len(c.out) > 0 {
		steps = append(steps, n.stepSend)
	}
	return steps
}

func (n *simNode) stepWrite() {
	c := n.core
	m := c.appends.Pop()
	var install *receipt
	if m.Snapshot != nil {
		install = c.installs.Front()
	}
	if err := c.disk.write(&m, install); err != nil {
		c.fail(fmt.Errorf("%w: %w", ErrFailed, err))
	}
	n.written = append(n.written, m)
}

func (n *simNode) stepFlush() {
	c := n.core
	all := n.written
	n.written = nil
	for i := range all {
		if c.disk.needsFlush(&all[i]) {
			if err := c.disk.flush(); err != nil {
				c.fail(fmt.Errorf("%w: %w", ErrFailed, err))
			}
			break
		}
	}
	for i := range all {
		c.stored(&all[i])
	}
}

func (n *simNode) stepApply() {
	t := n.core.tasks.Pop()
	n.applier.run(&t)
	n.sim.conf(n)
}

func (n *simNode) stepSend() {
	out := n.core.out
	n.core.out = nil
	for _, m := range out {
		n.sim.net.send(m)
	}
}

// run lets the cluster work for some steps of the clock.
func (s *sim) run(steps int, between func()) {
	for range steps {
		if s.failed != "" {
			return
		}
		s.now++
		s.net.flap()
		s.net.deliver()
		for _, n := range s.nodes {
			if n.up && !n.stopped && s.now >= n.clock {
				n.clock = s.now + n.rate
				n.core.tick()
			}
		}
		// Everybody does some of what can be done.
		for i := 0; i < 60 && s.failed == ""; i++ {
			var all []func()
			for _, n := range s.nodes {
				all = append(all, n.ready()...)
			}
			if len(all) == 0 {
				break
			}
			all[s.random.IntN(len(all))]()
		}
		if between != nil {
			between()
		}
	}
}

// leading returns the nodes that think that they lead.
func (s *sim) leading() (all []*simNode) {
	for _, n := range s.nodes {
		if n.up && n.status.Leading {
			all = append(all, n)
		}
	}
	return all
}

// propose proposes values on a node that thinks it leads.
func (s *sim) propose(n *simNode, count int) {
	for range count {
		s.value++
		e := commit.Entry{First: s.value, Count: 1, Records: binary.BigEndian.AppendUint64(make([]byte, 0, 40), s.value)}
		e.Records = append(e.Records, make([]byte, s.random.IntN(30))...)
		at, err := n.core.propose(n.status.Term, &e)
		if err != nil {
			return
		}
		key := simKey{n.id, n.starts, at}
		if s.proposals[key] != nil {
			s.fail("own", "%v got position %v twice", n, at)
		}
		s.proposals[key] = &simFate{value: s.value}
		s.counts["proposed"]++
	}
}

// read asks a node for a read index.
func (s *sim) read(n *simNode) {
	before := s.committed
	s.counts["asked"]++
	n.core.read(func(index uint64, err error) {
		if err != nil {
			return
		}
		s.counts["read"]++
		if index < before {
			s.fail("read", "%v read at %d; %d was committed before it asked", n, index, before)
		}
		if n.core.applied < index {
			s.fail("read", "%v answered a read at %d with %d applied", n, index, n.core.applied)
		}
	})
}

// checkApplied checks a value that a node has applied: all nodes must apply the same.
func (s *sim) checkApplied(n *simNode, i int, v uint64, at Position, sum uint32) {
	switch {
	case i > len(s.chosen):
		s.fail("order", "%v applied value %d at %v as number %d; nobody has number %d", n, v, at, i, len(s.chosen))
	case i == len(s.chosen):
		s.chosen, s.chosenAt, s.chosenSum = append(s.chosen, v), append(s.chosenAt, at), append(s.chosenSum, sum)
		s.checkStored(n, at)
	case s.chosen[i] != v || s.chosenAt[i] != at || s.chosenSum[i] != sum:
		s.fail("equal", "%v applied value %d (%x) at %v as number %d; another node has value %d (%x) at %v", n, v, sum, at, i, s.chosen[i], s.chosenSum[i], s.chosenAt[i])
	}
	s.committed = max(s.committed, at.Index)
}

// checkStored checks that a majority of the disks has an entry when the first node applies it:
// of the members before it, or of those before the last change, as long as the leader had not
// applied that.
func (s *sim) checkStored(n *simNode, at Position) {
	s.conf(n)
	var told []string
	seen := 0
	for i := len(s.confs) - 1; i >= 0 && seen < 2; i-- {
		m := &s.confs[i]
		if m.Index >= at.Index {
			continue
		}
		seen++
		enough := true
		for _, voters := range [][]uint64{m.Conf.Voters, m.Conf.VotersOutgoing} {
			have := 0
			for _, id := range voters {
				if s.nodes[id-1].disk.flushed.has(at.Index, at.Term) {
					have++
				}
			}
			if len(voters) > 0 && have < len(voters)/2+1 {
				enough = false
				told = append(told, fmt.Sprintf("%d of %v", have, voters))
			}
		}
		if enough {
			return
		}
	}
	s.fail("stored", "%v applied %v, which is on the disks of %s", n, at, strings.Join(told, " and "))
}

// conf remembers the members that a node has applied.
func (s *sim) conf(n *simNode) {
	if k := len(s.confs); k == 0 || s.confs[k-1].Index < n.core.members.Index {
		s.confs = append(s.confs, n.core.members.clone())
	}
}

// checkRestored checks a snapshot: it has all that was applied up to its index, and no more.
func (s *sim) checkRestored(n *simNode, at Position) {
	o := n.owner
	s.counts["restored"]++
	for i := range o.values {
		if i >= len(s.chosen) || o.values[i] != s.chosen[i] || o.at[i] != s.chosenAt[i] || o.sums[i] != s.chosenSum[i] {
			s.fail("equal", "%v restored value %d at %v as number %d, which was not applied", n, o.values[i], o.at[i], i)
			return
		}
	}
	want := 0
	for want < len(s.chosenAt) && s.chosenAt[want].Index <= at.Index {
		want++
	}
	if want != len(o.values) {
		s.fail("snapshot", "%v restored %d values at %v; up to there %d were applied", n, len(o.values), at, want)
	}
}

// checkBounds checks that a node keeps no more in memory than it promises, whatever happens to it.
func (s *sim) checkBounds() {
	for _, n := range s.nodes {
		if !n.up || n.stopped {
			continue
		}
		c := n.core
		for _, b := range []struct {
			what      string
			has, most int
		}{
			{"bytes of the tail", c.tail.bytes, 3*simTail + 2*simRoom + 20_000}, // and what was on its way to the disk
			{"bytes of proposals", c.pending.bytes, 2*simRoom + 200},
			{"snapshots on their way", len(c.streams), maxStreams},
			{"bytes of parts of a snapshot", c.partBytes, 2*windowBytes + 1<<10},
			{"groups of reads", len(c.reads.found), 1 << 10},
		} {
			s.most[b.what] = max(s.most[b.what], b.has)
			if b.has > b.most {
				s.fail("bounds", "%v has %d %s, at most %d are allowed", n, b.has, b.what, b.most)
			}
		}
	}
}

// checkLeads checks that a term has one leader, which has all that was applied.
func (s *sim) checkLeads(n *simNode, term uint64) {
	if who := s.leaders[term]; who != 0 && who != n.id {
		s.fail("leader", "nodes %d and %d lead in term %d", who, n.id, term)
	}
	s.leaders[term] = n.id
}

// checkOwn checks that a proposal is reported once.
func (s *sim) checkOwn(n *simNode, at Position, v uint64, what string) {
	f := s.proposals[simKey{n.id, n.starts, at}]
	switch {
	case f == nil:
		s.fail("own", "%v was told that %v is %s, which it has not proposed", n, at, what)
	case f.told != "":
		s.fail("own", "%v was told that %v is %s, after %s", n, at, what, f.told)
	case what == "committed" && f.value != v:
		s.fail("own", "%v was told that %v is committed with value %d; it proposed %d", n, at, v, f.value)
	case what == "lost" && slices.Contains(s.chosenAt, at):
		s.fail("own", "%v was told that %v is lost; it was applied", n, at)
	default:
		f.told = what
		s.counts[what]++
	}
}

// heal ends all faults and lets the cluster settle; then all nodes must have the same.
func (s *sim) heal() {
	if s.failed != "" {
		return
	}
	s.note("all faults end")
	s.trace = *simSeed != 0
	s.faults = false
	s.net.heal()
	for _, n := range s.nodes {
		n.disk.stalled, n.disk.broken, n.stopped, n.slow, n.rate = false, "", false, false, 10
		n.disk.lies = false
		n.clock = min(n.clock, s.now+10)
		if n.member && !n.up {
			n.start()
		}
	}
	equal := func() bool {
		leads := s.leading()
		if len(leads) != 1 || leads[0].core.pending.all.Len() > 0 {
			return false
		}
		for _, id := range leads[0].core.members.all() {
			n := s.nodes[id-1]
			if n.member && len(n.owner.values) != len(s.chosen) {
				return false
			}
		}
		return true
	}
	proposed := false
	for range 100 {
		s.run(100, nil)
		if s.failed != "" {
			return
		}
		if leads := s.leading(); len(leads) == 1 && !proposed {
			proposed = true
			s.propose(leads[0], 1)
		} else if proposed && equal() {
			s.final()
			return
		}
	}
	var state []string
	for _, n := range s.nodes {
		if n.up {
			state = append(state, fmt.Sprintf("%v: %+v, %d of %d values, applied %d, pending %d, members %+v", n, n.status, len(n.owner.values), len(s.chosen), n.core.applied, n.core.pending.all.Len(), n.core.members.Conf))
			n.core.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
				state = append(state, fmt.Sprintf("    node %d: %v, match %d, next %d, paused %v, pending snapshot %d", id, pr.State, pr.Match, pr.Next, pr.MsgAppFlowPaused, pr.PendingSnapshot))
			})
		}
	}
	s.fail("progress", "the cluster does not settle without faults:\n%s", strings.Join(state, "\n"))
}

// final checks the end of a run: members know what became of what they have proposed.
func (s *sim) final() {
	members := s.leading()[0].core.members.all()
	for _, k := range slices.SortedFunc(maps.Keys(s.proposals), func(a, b simKey) int {
		return int(a.at.Index) - int(b.at.Index)
	}) {
		f := s.proposals[k]
		n := s.nodes[k.node-1]
		if f.told == "" && k.start == n.starts && n.up && slices.Contains(members, n.id) {
			s.fail("own", "%v was never told what became of %v", n, k.at)
		}
	}
}
