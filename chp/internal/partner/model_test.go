package partner

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermap/chp/internal/state"
	"clustermap/internal/election"
)

// This is a model of a pair: both servers with their logs, the links between them, and
// clients. What decides is the real code: the machine of package election, reigns,
// standings, and isolation. The rest is reduced to what matters for who wins: an update is
// a number, a follower in step has everything at once, and time goes in looks.
//
// The rule that it checks: an update that a client was acknowledged is discarded only by a
// server that copies the map of another one which has accepted updates of clients, too,
// that the first one lacks. A server that has lost its data has lacked them since it began
// again; so another rule is that a map that both servers have had is not discarded for one
// that only one of them ever had.

// modelUpdate is an update in a log.
type modelUpdate struct {
	number int // identifies it
	state.Reign
	client bool // made by a client; the others delete a key that has expired
	acked  bool // the client was told
	both   bool // both servers had the map then
}

// modelServer is a server of the modelled pair.
type modelServer struct {
	machine   election.Machine
	reigns    state.Reigns
	isolation isolation
	log       []modelUpdate
	run       uint64
	source    uint64
	copied    bool // it may serve; see pair.mayServe
	active    bool // as run knows it
	up        bool
	apart     bool // cut off from clients, too
	down      bool // the other one's machine has said so since it was heard
	asked     bool // something arrived since the last look
	follows   bool // it gets the updates of the other one as they come
	alone     bool // active, and does not wait for the other one
	check     int  // identifies the question to the other one that is not answered yet
	checking  int  // looks since then
	again     int  // looks in which the other one, which has answered, may become active
	idle      int  // looks without the acknowledgement that updates wait for
	began     int  // the look of the start
	lost      bool // cut off from clients only
	pinged    bool // clients that only wait have been asked for a sign of life
	voting    int  // looks since the other one is asked because a client has voted, or 0
	blocked   bool // it waits for its own disk, and reads nothing
	stopped   bool // the process stands still, and what arrives waits
	queued    int  // updates of clients that wait for that
}

// modelMessage is a state message in transit.
type modelMessage struct {
	from election.Candidate
	at   int // the look in which it arrives
	ask  int // the question that it answers, on a new connection
}

// modelPair is a world of the model. It is copied by clone.
type modelPair struct {
	servers  [2]modelServer
	links    [2][]modelMessage // to each
	cut      bool              // between the servers
	stalled  bool              // the link for updates, not that for states
	late     bool              // old connections deliver late what was sent while the link was cut
	memory   bool              // without disks
	mutation modelMutation
	now      int // looks
	deaf     int // until then no connection for states was made anew
	checks   int
	sequence int64
	numbers  int
	runs     uint64
	random   *rand.Rand   // delays of messages; nil: none
	prompt   bool         // no delays, though random is not nil
	told     map[int]bool // if not nil: see busy
	history  []string
	fault    string
}

// modelMutation leaves out a safeguard.
type modelMutation uint8

const (
	modelEpochs     modelMutation = iota + 1 // the number of starts counts, not the data
	modelExpiry                              // what a server does by itself counts
	modelCopies                              // a server copies any map
	modelNoHolds                             // a server that was isolated accepts updates at once
	modelNewMaps                             // the terms of a map begin before the other server has it
	modelPromotions                          // a server that is promoted does not take over

	// Of isolation: see modelIsolations.
	modelOwnIsolation
	modelNoSuspicion
	modelNoQuestion
	modelAnswerStays
	modelNoHoldAsking
	modelExcludedStays
	modelNotAsked
	modelNoPings
	modelVoteAtOnce
	modelDiskHeard
)

const (
	modelTimeout = LooksPerTimeout // looks; the interval is half of it
	modelNever   = 1 << 30         // looks
)

func newModelPair(memory bool, m modelMutation, random *rand.Rand) *modelPair {
	w := &modelPair{memory: memory, mutation: m, random: random, sequence: 1}
	for i := range w.servers {
		w.start(i)
	}
	w.settle()
	return w
}

func (w *modelPair) clone() *modelPair {
	c := *w
	for i := range c.servers {
		s := &c.servers[i]
		s.log, s.reigns.Earlier = slices.Clone(s.log), slices.Clone(s.reigns.Earlier)
		c.links[i] = slices.Clone(c.links[i])
	}
	c.history = slices.Clone(c.history)
	return &c
}

func (w *modelPair) time() time.Duration { return time.Duration(w.now) * time.Millisecond }

func (w *modelPair) start(i int) {
	s := &w.servers[i]
	role := election.RolePrimary + election.Role(i)
	epoch := s.machine.Epoch
	if w.memory {
		s.log, s.reigns, epoch = nil, state.Reigns{}, 0
	}
	w.runs++
	*s = modelServer{
		machine: election.NewMachine(role, modelTimeout*time.Millisecond, w.time(), epoch),
		reigns:  s.reigns, log: s.log, run: w.runs, up: true, apart: s.apart, lost: s.lost, began: w.now,
	}
	s.reigns.Interim, s.reigns.Shared = false, w.mutation == modelNewMaps
	if w.mutation != modelEpochs {
		s.machine.Compare, s.machine.Copied = compareStandings, hasCopied
	}
	w.send(i)
}

func (w *modelPair) payload(i int) []byte {
	s := &w.servers[i]
	return appendStanding(nil, standing{s.reigns.Accepted(), s.run, s.source})
}

// linked reports whether the servers reach each other.
func (w *modelPair) linked() bool { return !w.cut && !w.servers[0].apart && !w.servers[1].apart }

// send sends the state of a server. Messages of a link that is cut are lost, for the
// link is dialled anew afterwards, or wait until it works again (see modelFaults).
func (w *modelPair) send(i int) { w.answer(i, 0) }

// answer is send, on a connection that the other server has made to ask that.
func (w *modelPair) answer(i, ask int) {
	if !w.servers[i].up || w.servers[i].stopped || w.now < w.deaf || !w.linked() && !w.late {
		return
	}
	delay := 0
	if w.random != nil && !w.prompt {
		delay = w.random.IntN(3)
	}
	m := &w.servers[i].machine
	m.Payload = w.payload(i)
	if !w.linked() {
		delay = modelNever
	}
	at, link := w.now+delay, w.links[1-i]
	if len(link) > 0 {
		at = max(at, link[len(link)-1].at) // in order
	}
	w.links[1-i] = append(link, modelMessage{m.Own(), at, ask})
}

// step makes a server's machine take a step, and the server what follows from it.
func (w *modelPair) step(i int, step func(m election.Machine) election.Machine) {
	s := &w.servers[i]
	s.machine.Payload = w.payload(i)
	before := s.machine
	s.machine = step(before)
	if s.machine.State == before.State && s.machine.Epoch == before.Epoch {
		return
	}
	switch s.machine.State {
	case election.StateActive:
		if !s.active { // Pair.Lead
			took := uint64(0)
			if before.State == election.StatePassive || s.machine.Reason == election.ReasonPromoted && w.mutation != modelPromotions {
				took = s.machine.Epoch
			}
			s.reigns.Begin(took)
			s.active, s.source, s.follows, s.copied, s.idle = true, 0, false, true, 0
			s.alone = true
		}
	default: // Pair.Yield
		if s.active || before.State != s.machine.State {
			s.active, s.follows, s.copied = false, false, false
		}
	}
	w.send(i)
}

// pass lets a look pass.
func (w *modelPair) pass() {
	if w.now++; w.now == w.deaf {
		w.send(0)
		w.send(1)
	}
	for i := range w.servers {
		for n := 0; n < len(w.links[i]) && !w.servers[i].stopped; {
			if w.links[i][n].at > w.now {
				n++
				continue
			}
			c, ask := w.links[i][n].from, w.links[i][n].ask
			w.links[i] = slices.Delete(w.links[i], n, n+1)
			if w.prompt && ask == 0 && n < len(w.links[i]) && w.links[i][n].at <= w.now {
				continue // only the last state counts; see binarystar.New
			}
			if s := &w.servers[i]; s.up {
				s.down = false
				w.step(i, func(m election.Machine) election.Machine { return m.Hear(w.time(), c) })
				if s.isolation.state == isolationChecking && ask == s.check {
					w.heardAnew(i)
				}
			}
		}
	}
	for i := range w.servers {
		s := &w.servers[i]
		if !s.up || s.stopped {
			continue
		}
		if w.now%(modelTimeout/2) == 0 {
			w.step(i, func(m election.Machine) election.Machine { return m.Step(w.time(), election.Tick) })
			w.send(i)
		}
		if w.linked() && !w.servers[1-i].up {
			s.down = true
		}
		w.look(i)
	}
	w.follow()
}

// look is what Pair.Run does in a look.
func (w *modelPair) look(i int) {
	s := &w.servers[i]
	w.voted(i)
	heard := s.machine.Peer.State != 0 && w.time()-s.machine.Heard < (modelTimeout/2+1)*time.Millisecond
	other := &w.servers[1-i]
	if s.isolation.state == isolationChecking {
		w.attempt(i, s.check)
		s.checking++
		switch {
		case s.again > 0:
			if s.again--; s.again == 0 {
				s.isolation.answered(true, false)
			}
		case w.linked() && !other.up: // ErrPeerDown
			s.isolation.answered(false, true)
		case s.checking > LooksPerTimeout/4:
			if v := &s.isolation; w.mutation == modelOwnIsolation {
				v.before, v.other = true, true
			}
			if s.isolation.answered(false, false) {
				w.ask(i)
			}
		}
	}
	suspected := s.isolation.state == isolationSuspected
	arrived := !s.blocked && (s.asked || s.pinged && !s.lost && !s.apart)
	s.asked, s.pinged = false, false
	if w.seen(i, observation{heard: heard, down: s.down, arrived: arrived, blocked: s.blocked}) {
		w.ask(i)
	}
	if s.isolation.state == isolationSuspected && !suspected {
		s.pinged = w.mutation != modelNoPings
	}
	if !s.active {
		return
	}
	switch {
	case w.inStep(i):
		s.idle, s.alone, s.reigns.Shared = 0, false, true // it acknowledges
	case !s.isolation.holds() || w.mutation == modelNoHolds:
		s.idle++
	}
	if s.alone {
		return
	}
	alone, ask := w.overdue(i)
	if ask {
		w.ask(i)
	}
	if s.alone = s.alone || alone; s.alone {
		w.acknowledge(i)
	}
}

// inStep reports whether the other server gets the updates of one at once.
func (w *modelPair) inStep(i int) bool {
	other := &w.servers[1-i]
	return other.follows && other.up && !other.stopped && w.linked() && !w.stalled
}

// ask makes both servers say their states on a new connection.
func (w *modelPair) ask(i int) {
	w.checks++
	s := &w.servers[i]
	s.check, s.checking, s.again = w.checks, 0, 0
	s.pinged = w.mutation != modelNoPings
	w.links[i] = nil // what an old connection delivers later is not read; see Node.redial
	w.attempt(i, s.check)
}

// attempt is one attempt of Node.Probe, which makes more than one in a look.
func (w *modelPair) attempt(i, question int) {
	if w.linked() {
		w.deaf = w.now
		w.answer(1-i, question)
		w.send(i)
	}
}

// acknowledge tells the clients that their updates are published, if they reach a server.
func (w *modelPair) acknowledge(i int) {
	if !w.reachable(i) {
		return
	}
	for n := range w.servers[i].log {
		w.servers[i].log[n].acked = true
	}
}

// follow lets a passive server copy the active one's map, or get the rest of it.
func (w *modelPair) follow() {
	if !w.linked() || w.stalled {
		return
	}
	for i := range w.servers {
		s, a := &w.servers[i], &w.servers[1-i]
		if !s.up || !a.up || s.stopped || a.stopped || s.machine.State != election.StatePassive || !a.active {
			continue
		}
		if !s.follows {
			if w.mutation != modelEpochs && w.mutation != modelCopies && compareStandings(w.payload(i), w.payload(1-i)) > 0 {
				continue // copier.outranks
			}
			w.discard(s, a)
		}
		s.log = slices.Clone(a.log)
		s.reigns.Set(a.reigns.History())
		s.source, s.follows, s.copied, s.reigns.Shared = a.run, true, true, true
		w.acknowledge(1 - i)
		w.acknowledge(i)
	}
}

// discard checks the rule when a server copies the map of another one.
func (w *modelPair) discard(s, a *modelServer) {
	has := func(log []modelUpdate, number int) bool {
		return slices.ContainsFunc(log, func(u modelUpdate) bool { return u.number == number })
	}
	lost := slices.ContainsFunc(s.log, func(u modelUpdate) bool { return u.client && u.acked && !has(a.log, u.number) })
	others := slices.ContainsFunc(a.log, func(u modelUpdate) bool { return u.client && !has(s.log, u.number) })
	shared := func(u modelUpdate) bool { return u.client && u.both }
	switch {
	case lost && !others:
		w.fault = "acknowledged updates are discarded for a map that has no others"
	case slices.ContainsFunc(s.log, shared) && !slices.ContainsFunc(a.log, shared):
		w.fault = "a map that both servers had is discarded for one that only one of them ever had"
	case lost:
		w.history = append(w.history, "(discards)")
	}
}

// reachable reports whether clients reach a server.
func (w *modelPair) reachable(i int) bool {
	s := &w.servers[i]
	return s.up && !s.apart && !s.lost && !s.stopped
}

// reached is reachable, and counts that they try.
func (w *modelPair) reached(i int) bool {
	s := &w.servers[i]
	s.asked = s.asked || w.reachable(i)
	return w.reachable(i)
}

// vote is a request of a client: see parked.vote.
func (w *modelPair) vote(i int) {
	s := &w.servers[i]
	switch {
	case !w.reached(i) || s.active || !w.mayServe(i) || s.voting > 0 || !s.machine.CanTakeOver(w.time()):
	case w.mutation == modelVoteAtOnce:
		w.step(i, func(m election.Machine) election.Machine { return m.Step(w.time(), election.Vote) })
	default:
		s.voting, w.links[i] = 1, nil
		w.attempt(i, 0)
	}
}

// voted makes a server for which a client has voted the active one, if the other one has
// had time to answer.
func (w *modelPair) voted(i int) {
	s := &w.servers[i]
	if s.voting == 0 {
		return
	}
	w.attempt(i, 0)
	if s.voting++; s.voting > LooksPerTimeout/4 || w.linked() && !w.servers[1-i].up {
		s.voting = 0
		if w.mayServe(i) {
			w.step(i, func(m election.Machine) election.Machine { return m.Step(w.time(), election.Vote) })
		}
	}
}

// lose has a server that does not run lose its data.
func (w *modelPair) lose(i int) bool {
	s := &w.servers[i]
	if s.up || len(s.log) == 0 {
		return false
	}
	s.log, s.reigns, s.machine.Epoch = nil, state.Reigns{}, 0
	return true
}

// promote is what pair.promote does at the request of an operator.
func (w *modelPair) promote(i int) bool {
	s := &w.servers[i]
	if !s.up || s.stopped || s.active || !w.mayServe(i) {
		return false
	}
	w.step(i, func(m election.Machine) election.Machine { return m.Step(w.time(), election.Promote) })
	return s.active
}

// mayServe is pair.mayServe.
func (w *modelPair) mayServe(i int) bool {
	s := &w.servers[i]
	if s.machine.State == election.StatePassive {
		return s.copied
	}
	return w.now-s.began > startTimeouts*modelTimeout
}

// update is an update of a client, or of the server itself.
func (w *modelPair) update(i int, client bool) bool {
	s, other := &w.servers[i], &w.servers[1-i]
	if client && s.stopped && s.up && !s.apart && !s.lost {
		s.queued++
	}
	if client && !w.reached(i) || !s.up || s.stopped || s.blocked || !s.active || client && w.holds(i) {
		return false
	}
	if client || w.mutation == modelExpiry {
		s.reigns.Count()
	}
	w.numbers++
	w.sequence++
	u := modelUpdate{number: w.numbers, Reign: state.Reign{ID: s.reigns.Present, Last: w.sequence}, client: client}
	inStep := w.inStep(i)
	u.acked, u.both = inStep || s.alone, inStep
	s.reigns.Advance(u.ID, u.Last)
	s.log = append(s.log, u)
	if inStep {
		other.reigns.Advance(u.ID, u.Last)
		other.log = append(other.log, u)
	}
	return true
}

// settle lets time pass until nothing happens any more, while clients ask all servers.
func (w *modelPair) settle() {
	for n := range 4 * modelTimeout {
		w.pass()
		if n > modelTimeout {
			w.vote(0)
			w.vote(1)
		}
	}
}

// heal ends all trouble, and checks that the pair comes together.
func (w *modelPair) heal() {
	w.cut, w.stalled = false, false
	for i := range w.servers {
		s := &w.servers[i]
		s.apart, s.lost, s.stopped = false, false, false
	}
	for i := range w.servers {
		if !w.servers[i].up {
			w.start(i)
		}
	}
	w.settle()
	w.settle()
	a, b := &w.servers[0], &w.servers[1]
	switch {
	case w.fault != "":
	case a.active == b.active || !a.follows && !b.follows:
		w.fault = fmt.Sprintf("%v and %v in the end", a.machine.State, b.machine.State)
	case !slices.EqualFunc(a.log, b.log, func(u, v modelUpdate) bool { return u.number == v.number }):
		w.fault = "the maps differ in the end"
	}
}

// event is something that can happen to the pair. It reports whether it can now.
type modelEvent struct {
	name string
	do   func(w *modelPair) bool
}

var modelEvents = func() (all []modelEvent) {
	add := func(name string, do func(w *modelPair) bool) { all = append(all, modelEvent{name, do}) }
	for i, who := range []string{"primary", "backup"} {
		add("kill "+who, func(w *modelPair) bool {
			s := &w.servers[i]
			was := s.up
			s.up, s.active, s.follows, s.stopped, s.queued, s.machine.State = false, false, false, false, 0, 0
			w.servers[1-i].follows = false
			return was
		})
		add("start "+who, func(w *modelPair) bool {
			if w.servers[i].up {
				return false
			}
			w.start(i)
			return true
		})
		add("isolate "+who, func(w *modelPair) bool {
			was := w.servers[i].apart
			w.servers[i].apart, w.links = true, [2][]modelMessage{}
			return !was
		})
		add("clients ask "+who, func(w *modelPair) bool {
			if w.servers[i].active || !w.reached(i) {
				return false
			}
			for range 4 * modelTimeout {
				w.vote(i)
				w.pass()
			}
			return true
		})
		add("update at "+who, func(w *modelPair) bool { return w.update(i, true) })
		add("expiry at "+who, func(w *modelPair) bool { return len(w.servers[i].log) > 0 && w.update(i, false) })
	}
	for i, who := range []string{"primary", "backup"} {
		add("promote "+who, func(w *modelPair) bool { return w.promote(i) })
	}
	add("cut the servers off from each other", func(w *modelPair) bool {
		was := w.cut
		w.cut, w.links = true, [2][]modelMessage{}
		return !was
	})
	add("stall the link for updates", func(w *modelPair) bool {
		was := w.stalled
		w.stalled = true
		return !was
	})
	add("heal the network", func(w *modelPair) bool {
		if w.linked() && !w.stalled {
			return false
		}
		w.cut, w.stalled = false, false
		w.servers[0].apart, w.servers[1].apart = false, false
		w.servers[0].follows, w.servers[1].follows = false, false
		w.deaf = w.now + 1
		if w.random != nil {
			w.deaf += w.random.IntN(modelTimeout / 2) // an interval
		}
		return true
	})
	return all
}()

// modelLosses are events that not all tests have.
var modelLosses = []modelEvent{
	{"lose the data of primary", func(w *modelPair) bool { return w.lose(0) }},
	{"lose the data of backup", func(w *modelPair) bool { return w.lose(1) }},
}

// order applies events, given their names. It fails if one of them cannot happen.
func (w *modelPair) order(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		all := slices.Concat(modelEvents, modelLosses)
		i := slices.IndexFunc(all, func(e modelEvent) bool { return e.name == name })
		if i < 0 || !w.apply(all[i]) {
			t.Fatalf("%s: cannot be after %v", name, w.history)
		}
	}
}

// apply lets an event happen, and then a time pass in which all react to it.
func (w *modelPair) apply(e modelEvent) bool {
	if !e.do(w) {
		return false
	}
	w.history = append(w.history, e.name)
	for range 2 * modelTimeout {
		w.pass()
	}
	return true
}

// key identifies a world, but for times and names.
func (w *modelPair) key() uint64 {
	names, ids := map[int]byte{}, map[uint64]byte{}
	var b []byte
	flag := func(all ...bool) {
		for _, v := range all {
			b = append(b, '0')
			if v {
				b[len(b)-1] = '1'
			}
		}
	}
	for i := range w.servers {
		s := &w.servers[i]
		flag(s.voting > 0, s.up, s.active, s.apart, s.follows, s.alone, s.copied, s.down, s.reigns.Interim, s.reigns.Shared, s.source == w.servers[1-i].run, s.machine.Epoch > w.servers[1-i].machine.Epoch, s.machine.Epoch < w.servers[1-i].machine.Epoch)
		b = append(b, byte(s.machine.State), byte(s.machine.Peer.State), byte(s.isolation.state))
		for _, u := range s.log {
			if _, ok := names[u.number]; !ok {
				names[u.number] = byte(len(names))
			}
			if _, ok := ids[u.ID]; !ok {
				ids[u.ID] = byte(len(ids))
			}
			b = append(b, names[u.number], ids[u.ID], byte(state.TermOf(u.ID)))
			flag(u.client, u.acked, u.both, u.ID&state.ReignTook != 0)
		}
		b = append(b, '|')
	}
	flag(w.cut, w.stalled)
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// exploreModel explores every order of events up to a length. It returns the number of
// worlds, and the first fault.
func exploreModel(begin *modelPair, depth int) (total int, fault string) {
	seen := map[uint64]bool{}
	worlds := []*modelPair{begin}
	for range depth {
		var next []*modelPair
		for _, w := range worlds {
			for _, e := range modelEvents {
				c := w.clone()
				if !c.apply(e) {
					continue
				}
				k := c.key()
				if seen[k] {
					continue
				}
				seen[k] = true
				next = append(next, c)
				end := c.clone()
				end.heal()
				if end.fault != "" {
					return total, end.String()
				}
			}
		}
		worlds = next
		total += len(worlds)
	}
	return total, ""
}

// String returns the fault and how it came about.
func (w *modelPair) String() string {
	return w.fault + " after: " + strings.Join(w.history, ", ")
}

// TestPairModel explores every order of up to eight events: kills, restarts, isolation,
// expiry, takeovers and promotions. Whatever happens, the pair comes together when all
// trouble ends, and an acknowledged update is discarded only where both servers had
// accepted updates of clients without each other.
func TestPairModel(t *testing.T) {
	needsMemory(t)
	t.Parallel()
	depth := 8
	if testing.Short() {
		depth = 5
	}
	// A pair that begins with the primary alone, whose map the backup gets later.
	alone := newModelPair(false, 0, nil)
	alone.order(t, "kill backup", "kill primary", "start primary", "clients ask primary", "update at primary")
	for _, c := range []struct {
		name  string
		begin *modelPair
		depth int
	}{{"disks", newModelPair(false, 0, nil), depth}, {"memory", newModelPair(true, 0, nil), depth}, {"disks, primary first", alone, depth - 1}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			total, fault := exploreModel(c.begin, c.depth)
			if fault != "" {
				t.Error(fault)
			}
			t.Logf("%d worlds", total)
		})
	}
}

// needsMemory skips a test of the model where there are 32 bits: all its worlds together do
// not fit beside the other tests of the package, and the model computes the same everywhere.
func needsMemory(t *testing.T) {
	t.Helper()
	if strconv.IntSize == 32 {
		t.Skip("needs more memory than 32 bits can address")
	}
}
