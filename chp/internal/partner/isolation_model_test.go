package partner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"clustermap/internal/election"
)

// The model of pair_model_test.go with links that fail one by one, from one look to the
// next: the servers lose each other and their clients at different moments, updates stop
// arriving before states do, what was sent on old connections arrives when the network
// works again, questions are answered too late, and a process stands still while
// messages for it wait. Exploring all orders of events does not show what that does,
// because there all servers come to rest after each event.

// The following apply the rules of isolation, or leave one out.

// seen is isolation.look.
func (w *modelPair) seen(i int, v observation) (ask bool) {
	s := &w.servers[i].isolation
	before := *s
	ask = s.look(v)
	switch {
	case w.mutation == modelNoSuspicion && s.state == isolationSuspected:
		s.state = isolationNone
	case w.mutation == modelNoQuestion && ask:
		s.state, ask = isolationNone, false
	case w.mutation == modelAnswerStays && before.fresh > 0:
		s.fresh = before.fresh
	case w.mutation == modelDiskHeard && v.blocked:
		*s, v.arrived = before, true
		ask = s.look(v)
	case w.mutation == modelExcludedStays && before.state == isolationExcluded:
		*s = before
	}
	return ask
}

// heardAnew is pair.answered for an answer.
func (w *modelPair) heardAnew(i int) {
	s := &w.servers[i]
	own, peer := w.payload(i), s.machine.Peer.Payload
	behind := !hasCopied(own, peer) && compareStandings(own, peer) < 0
	switch {
	case s.again > 0: // waits already
	case s.active && (behind || s.machine.Peer.State == election.StateActive):
		s.again = LooksPerTimeout / 4
	default:
		s.isolation.answered(true, false)
	}
}

// overdue is isolation.overdue.
func (w *modelPair) overdue(i int) (alone, ask bool) {
	s := &w.servers[i]
	switch {
	case w.mutation == modelNoHolds, w.mutation == modelNotAsked:
		return s.idle > LooksPerTimeout, false
	}
	return s.isolation.overdue(s.idle)
}

// holds is isolation.holds.
func (w *modelPair) holds(i int) bool {
	s := &w.servers[i].isolation
	switch w.mutation {
	case modelNoHolds:
		return false
	case modelNoHoldAsking:
		return s.state == isolationSuspected
	}
	return s.holds()
}

// busy lets time pass while clients ask and write to both servers, and keys expire.
func (w *modelPair) busy(looks int) {
	for range looks {
		w.pass()
		for i := range w.servers {
			switch w.random.IntN(4) {
			case 0:
				w.update(i, true)
			case 1:
				w.update(i, false)
			case 2:
				w.vote(i)
			}
		}
		if w.told != nil {
			maps.Copy(w.told, w.acknowledged())
		}
	}
}

// modelChange is a change of the modelled network or a process.
type modelChange struct {
	at   int // looks after the first
	name string
	do   func()
}

// run makes changes, each in its look, and lets at least so many looks pass.
func (w *modelPair) run(looks int, all ...modelChange) {
	slices.SortStableFunc(all, func(a, b modelChange) int { return a.at - b.at })
	begin := w.now
	for _, c := range all {
		w.busy(begin + c.at - w.now)
		w.history = append(w.history, fmt.Sprintf("%d: %s", w.now, c.name))
		c.do()
	}
	w.busy(looks)
}

// setCut cuts the link between the servers. What is in transit is lost, or arrives when the
// link works again.
func (w *modelPair) setCut(cut bool) {
	w.cut = cut
	if cut {
		for i := range w.links {
			for n := range w.links[i] {
				w.links[i][n].at = w.now + modelNever
			}
		}
		return
	}
	w.deaf = w.now + 1
	if !w.prompt {
		w.deaf += w.random.IntN(modelTimeout / 2) // an interval
	}
	for i := range w.servers {
		w.servers[i].follows = false
		if w.random.IntN(2) == 0 { // the connection was made anew
			w.links[i] = nil
		}
		at := w.now
		for n := range w.links[i] {
			at = max(at, w.now+w.random.IntN(3))
			w.links[i][n].at = at
		}
	}
}

// stop makes a process stand still.
func (w *modelPair) stop(i int) { w.servers[i].stopped = true }

// resume ends that. The updates that have waited arrive before or after the states of
// the other server.
func (w *modelPair) resume(i int) {
	s := &w.servers[i]
	s.stopped = false
	if w.random.IntN(2) == 0 {
		w.pass()
	}
	for ; s.queued > 0; s.queued-- {
		w.update(i, true)
	}
}

// acknowledged returns the updates that clients were told are published.
func (w *modelPair) acknowledged() map[int]bool {
	all := map[int]bool{}
	for _, s := range w.servers {
		for _, u := range s.log {
			if u.client && u.acked {
				all[u.number] = true
			}
		}
	}
	return all
}

// modelFaults is a schedule of faults of one server at a time: it is isolated, loses its
// clients, or stands still, and the pair comes together before the next one. The links of
// a server that is isolated do not fail at the same time, but within half the time-out:
// then the other server may take over, and one that clients still reach would serve, too.
func modelFaults(seed uint64, m modelMutation) *modelPair {
	random := rand.New(rand.NewPCG(seed, 3))
	w := newModelPair(seed%2 == 0, m, random)
	w.late, w.prompt = true, seed%4 < 2
	for range 4 {
		w.busy(random.IntN(2 * modelTimeout))
		i, looks := random.IntN(2), random.IntN(6*modelTimeout)
		s, who := &w.servers[i], []string{"primary", "backup"}[i]
		var all []modelChange
		add := func(at int, name string, do func()) { all = append(all, modelChange{at, name, do}) }
		kind := random.IntN(4)
		switch kind {
		case 0:
			add(0, "stop the process of "+who, func() { w.stop(i) })
		case 1:
			add(0, "cut clients off from "+who, func() { s.lost = true })
		default:
			if random.IntN(2) == 0 {
				add(0, "updates stop arriving at the other server", func() { w.stalled = true })
			}
			add(random.IntN(modelTimeout/2), "cut the servers off from each other", func() { w.setCut(true) })
			add(random.IntN(modelTimeout/2), "cut clients off from "+who, func() { s.lost = true })
		}
		w.run(looks, all...)
		acked := w.acknowledged()
		if w.prompt && looks < 2*modelTimeout { // no message is on its way while both serve
			w.told = acked
		}
		all = nil
		switch kind {
		case 0:
			add(0, "continue the process of "+who, func() { w.resume(i) })
		case 1:
			add(0, "clients reach "+who, func() { s.lost = false })
		default:
			add(1, "the servers reach each other", func() { w.setCut(false) })
			add(1+random.IntN(modelTimeout/2), "updates arrive", func() { w.stalled = false })
			add(random.IntN(modelTimeout), "clients reach "+who, func() { s.lost = false })
		}
		w.run(2*modelTimeout, all...)
		w.told = nil
		w.heal()
		w.keeps(acked)
		if w.fault != "" {
			break
		}
	}
	return w
}

// modelDeadMachine is the death of the other machine, while a client only waits for what
// it has sent: its updates must not wait for ever.
func modelDeadMachine(m modelMutation) *modelPair {
	w := newModelPair(false, m, nil)
	w.stalled = true
	w.update(0, true)
	w.history = append(w.history, "the backup's machine dies, and a client waits")
	w.cut = true
	for range 8 * modelTimeout {
		w.pass()
	}
	switch s := &w.servers[0]; {
	case !s.log[len(s.log)-1].acked:
		w.fault = "an update is not acknowledged"
	case s.isolation.holds():
		w.fault = "an update is not accepted"
	}
	return w
}

// modelReturn is the end of an isolation of the active server, which has asked the other
// one before: clients reach it and write at once, and then the servers reach each other,
// of which the other one has taken over. What it acknowledges before it hears of that is
// lost, be it an update that has waited since the beginning, or one of those. The server's disk
// may be behind the same network.
func modelReturn(m modelMutation, looks int, pending, disk bool) *modelPair {
	w := newModelPair(false, m, nil)
	primary := &w.servers[0]
	for _, w.stalled = range []bool{true, false} {
		for range 2 * modelTimeout {
			w.pass()
			w.update(0, true)
		}
	}
	w.history = append(w.history, fmt.Sprintf("isolate primary for %d looks", looks))
	if w.stalled = true; pending {
		w.update(0, true)
	}
	w.cut, primary.lost, primary.blocked = true, true, disk
	for range looks {
		w.pass()
		w.vote(1)
		w.update(1, true)
	}
	acked := w.acknowledged()
	try := func() {
		w.pass()
		w.update(0, true)
		maps.Copy(acked, w.acknowledged())
	}
	primary.lost, primary.blocked = false, false
	try()
	w.cut, w.stalled, w.deaf = false, false, w.now+2
	for range 2 * modelTimeout {
		try()
	}
	w.heal()
	w.keeps(acked)
	return w
}

// keeps checks that no update is lost.
func (w *modelPair) keeps(acked map[int]bool) {
	for _, u := range w.servers[0].log {
		delete(acked, u.number)
	}
	if len(acked) > 0 && w.fault == "" {
		w.fault = fmt.Sprintf("%d acknowledged updates are lost", len(acked))
	}
}

// modelReturnAlone is modelReturn of a server that had just gone on alone, so that it
// publishes at once what it accepts.
func modelReturnAlone(m modelMutation) *modelPair {
	w := newModelPair(false, m, nil)
	primary := &w.servers[0]
	w.stalled = true
	w.update(0, true)
	for !primary.alone {
		w.pass()
		w.vote(0)
	}
	before := w.acknowledged()
	w.history = append(w.history, "isolate primary")
	w.cut, primary.lost = true, true
	for w.now < 10*modelTimeout+3 { // not just before a state of the other one
		w.pass()
		w.vote(1)
		w.update(1, true)
	}
	w.history = append(w.history, "all reach primary")
	w.cut, w.stalled, primary.lost = false, false, false
	acked := map[int]bool{}
	for primary.active {
		w.pass()
		w.update(0, true)
		maps.Copy(acked, w.acknowledged())
	}
	for u := range before {
		delete(acked, u) // at the risk of who publishes alone
	}
	w.heal()
	w.keeps(acked)
	return w
}

// modelAnswered is an isolation of the active server, for which updates wait already, and which
// had an answer of the other one long before: that says nothing about now.
func modelAnswered(m modelMutation) *modelPair {
	w := newModelPair(false, m, nil)
	primary := &w.servers[0]
	wait := func(looks int) {
		for range looks {
			w.pass()
			w.update(0, true)
			w.vote(1)
			w.update(1, true)
		}
	}
	w.stalled = true // it asks, has an answer, and goes on alone
	wait(2 * modelTimeout)
	w.stalled = false
	wait(2 * modelTimeout)
	w.stalled = true
	wait(modelTimeout - 3)
	w.history = append(w.history, "isolate primary, of which updates wait")
	w.cut = true
	wait(modelTimeout / 3)
	primary.lost = true
	wait(2 * modelTimeout)
	acked := w.acknowledged()
	w.heal()
	w.keeps(acked)
	return w
}

// modelReturnPassive is the end of an isolation of the passive server, which clients reach
// again before it hears the other one: it must not take over, for what the other one
// acknowledges until it hears of that is lost, and states take a while.
func modelReturnPassive(seed uint64, m modelMutation) *modelPair {
	random := rand.New(rand.NewPCG(seed, 4))
	w := newModelPair(false, m, random)
	w.late = true
	backup := &w.servers[1]
	w.busy(random.IntN(modelTimeout))
	w.setCut(true)
	backup.lost = true
	w.history = append(w.history, fmt.Sprintf("%d: isolate backup", w.now))
	w.busy(modelTimeout + random.IntN(2*modelTimeout))
	w.history = append(w.history, fmt.Sprintf("%d: all reach backup", w.now))
	w.setCut(false)
	backup.lost = false
	w.told = w.acknowledged()
	w.busy(2 * modelTimeout)
	acked := w.told
	w.told = nil
	w.heal()
	w.keeps(acked)
	return w
}

// modelDirected are the schedules that random ones do not have often enough.
func modelDirected(m modelMutation) []*modelPair {
	all := []*modelPair{modelDeadMachine(m), modelAnswered(m), modelReturnAlone(m)}
	for _, disk := range []bool{false, true} {
		all = append(all, modelReturn(m, 8*modelTimeout, false, disk), modelReturn(m, 8*modelTimeout, true, disk))
	}
	for looks := modelTimeout; looks < 2*modelTimeout; looks++ {
		all = append(all, modelReturn(m, looks, true, false))
	}
	return all
}

// modelFault returns the first schedule that has a fault, or nil.
func modelFault(seeds uint64, m modelMutation) *modelPair {
	all := modelDirected(m)
	if i := slices.IndexFunc(all, func(w *modelPair) bool { return w.fault != "" }); i >= 0 {
		return all[i]
	}
	for _, schedule := range []func(uint64, modelMutation) *modelPair{modelReturnPassive, modelSingleFaults, modelFaults} {
		if w := modelSeeds(seeds, m, schedule); w.fault != "" {
			return w
		}
	}
	return nil
}

// TestPairModelLinks: no acknowledged update is lost if the links of a server fail, or its
// process stands still, and the pair comes together before the next fault.
func TestPairModelLinks(t *testing.T) {
	needsMemory(t)
	t.Parallel()
	seeds := uint64(500)
	if testing.Short() {
		seeds = 150
	}
	if w := modelFault(seeds, 0); w != nil {
		t.Error(w)
	}
}

// modelIsolations are the rules of isolation that the model leaves out.
var modelIsolations = map[modelMutation]string{
	modelOwnIsolation:  "no answer while nobody is heard counts",
	modelNoSuspicion:   "silence of everybody is not suspicious",
	modelNoQuestion:    "the other server is not asked when something arrives again",
	modelAnswerStays:   "an answer counts for ever",
	modelNoHoldAsking:  "updates are accepted until the other server answers",
	modelExcludedStays: "a server that did not answer is not expected again",
	modelNotAsked:      "a server goes on alone without asking",
	modelNoPings:       "clients that only wait are not asked for a sign of life",
	modelVoteAtOnce:    "a server takes over without asking",
	modelDiskHeard:     "a server that waits for its own disk takes that for a sign of others",
}

// TestPairModelFindsFaultsOfIsolation: the model finds what each rule of isolation prevents.
func TestPairModelFindsFaultsOfIsolation(t *testing.T) {
	needsMemory(t)
	t.Parallel()
	for m, name := range modelIsolations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := modelFault(1000, m)
			if w == nil {
				t.Fatal("no fault is found")
			}
			t.Log(w)
		})
	}
}
