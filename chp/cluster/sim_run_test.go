package cluster

import (
	"context"
	"flag"
	"fmt"
	"testing"
)

var (
	simRuns    = flag.Int("sim.runs", 0, "how many seeds to simulate")
	simFrom    = flag.Uint64("sim.from", 1, "the first seed")
	simProfile = flag.String("sim.profile", "", "simulate this profile alone")
	simSeed    = flag.Uint64("sim.seed", 0, "simulate this seed alone, and print its transcript")
)

// A profile says how often things happen: in one of so many steps, or never if 0.
type profile struct {
	name                                 string
	fault, restart, split, save, members int
	disk                                 int  // a disk does not work any more, or works again
	lies                                 bool // the disk of one node says that it has flushed what it has not
	seeds                                int  // of a run of the tests
}

var profiles = []profile{
	{name: "all", fault: 25, save: 60, members: 80, disk: 300, seeds: 100},
	// Elections, in which voters forget what they do not store.
	{name: "votes", restart: 6, split: 40, fault: 200, seeds: 40},
	// One change of the members after the other, and nodes that are behind.
	{name: "members", fault: 40, restart: 60, save: 200, members: 12, seeds: 40},
	// Disks that are full, or fail.
	{name: "disk", fault: 60, save: 30, disk: 80, seeds: 40},
	// A disk that lies, at a node that often loses power.
	{name: "lies", fault: 60, restart: 30, save: 200, lies: true, seeds: 40},
}

// chaos lets faults happen to a cluster for a while.
func (s *sim) chaos(p *profile, steps int) {
	happens := func(n int) bool { return n > 0 && s.chance(n) }
	if p.lies {
		s.nodes[s.seed%uint64(s.net.first)].disk.lies = true
	}
	s.run(steps, func() {
		if leads := s.leading(); len(leads) > 0 {
			n := leads[s.random.IntN(len(leads))]
			if s.chance(3) {
				s.propose(n, 1+s.random.IntN(4))
			}
		}
		if s.chance(4) {
			if n := s.nodes[s.random.IntN(len(s.nodes))]; n.up && !n.stopped {
				s.read(n)
			}
		}
		if happens(p.fault) {
			s.fault()
		}
		if happens(p.restart) {
			if n := s.nodes[s.random.IntN(len(s.nodes))]; n.up {
				n.crash(true)
				n.start()
			}
		}
		if happens(p.split) { // a new election, in which messages take long
			s.net.delay = 1 + s.random.IntN(40)
			s.net.partition()
			if s.chance(2) {
				s.net.cut = map[[2]uint64]bool{}
				for _, n := range s.leading() {
					n.crash(true)
					n.start()
				}
			}
		}
		if happens(p.save) {
			s.save()
		}
		if happens(p.members) {
			s.members()
		}
		if happens(p.disk) {
			s.breakDisk()
		}
		for _, n := range s.nodes {
			if n.disk.broken != "" && n.disk.works <= s.now {
				n.disk.broken = ""
				s.note("%v: its disk works again", n)
			}
		}
		s.checkBounds()
	})
}

// breakDisk breaks the disk of a node for a while.
func (s *sim) breakDisk() {
	n := s.nodes[s.random.IntN(len(s.nodes))]
	n.disk.broken = []string{brokenWrites, brokenFlushes}[s.random.IntN(2)]
	n.disk.works = s.now + s.random.IntN(300)
	s.note("%v: its disk cannot do %s", n, n.disk.broken)
	s.counts["broken"]++
}

// fault makes something go wrong, or right again.
func (s *sim) fault() {
	n := s.nodes[s.random.IntN(len(s.nodes))]
	if !n.member {
		return
	}
	switch s.random.IntN(15) {
	case 0, 1:
		s.net.partition()
	case 2, 3, 4:
		s.net.heal()
	case 5:
		s.net.loss, s.net.twice, s.net.delay = s.random.IntN(20), 5+s.random.IntN(20), 1+s.random.IntN(30)
		s.note("network: loses one of %d, repeats one of %d, delays up to %d", s.net.loss, s.net.twice, s.net.delay)
	case 6:
		if n.up {
			n.crash(s.chance(2))
		} else {
			n.start()
		}
	case 7: // all at once
		if s.chance(4) {
			for _, n := range s.nodes {
				if n.up {
					n.crash(true)
				}
			}
		}
	case 8:
		n.disk.stalled = !n.disk.stalled
		s.note("%v: disk stalled %v", n, n.disk.stalled)
	case 9:
		n.stopped = !n.stopped
		s.note("%v: stopped %v", n, n.stopped)
	case 10:
		n.slow = !n.slow
		n.rate = 7 + s.random.IntN(7)
	case 11:
		if n.up && n.status.Leading {
			s.note("%v: hands its term over", n)
			_ = n.core.move(0)
		}
	case 12: // its clock goes forward at once
		if n.up && !n.stopped {
			ticks := 1 + s.random.IntN(10*electionTicks)
			s.note("%v: its clock jumps by %d ticks", n, ticks)
			s.counts["clock"]++
			for range ticks {
				n.core.tick()
			}
		}
	case 13: // its clock stands, as that of one that goes back seems to
		n.clock = s.now + s.random.IntN(1000)
		s.note("%v: its clock stands for %d steps", n, n.clock-s.now)
	case 14: // takes turns with the partition before it, or with none
		s.net.partition()
		s.net.flaps = 5 + s.random.IntN(120)
		s.note("partition: takes turns of %d steps with the one before", s.net.flaps)
		s.counts["flapping"]++
	}
	for _, n := range s.nodes {
		if n.member && !n.up && s.chance(3) {
			n.start()
		}
	}
}

// save writes a checkpoint.
func (s *sim) save() {
	n := s.nodes[s.random.IntN(len(s.nodes))]
	if !n.up || n.stopped || n.disk.stalled {
		return
	}
	n.core.tasks.Push(task{cut: true, save: func(k *cut, err error) {
		if err == nil && k.at.Index > n.disk.now.index && k.at.Index <= n.disk.now.last() {
			_ = n.core.disk.checkpoint(context.Background(), k)
			s.counts["checkpoint"]++
		}
	}})
}

// members changes the members.
func (s *sim) members() {
	leads := s.leading()
	if len(leads) == 0 {
		return
	}
	n := leads[0]
	now := n.core.members.clone()
	x := s.nodes[s.random.IntN(len(s.nodes))]
	var c Change
	switch {
	case !x.member && !x.gone:
		x.member = true
		x.start()
		c = Change{ChangeAdd, x.id, fmt.Sprint("sim-", x.id)}
	case x.gone, contains(now.Gone, x.id):
		x.gone = true
		return
	case contains(now.Conf.Learners, x.id):
		c = Change{Kind: ChangePromote, Node: x.id}
	case contains(now.Conf.Voters, x.id) && len(now.Conf.Voters) > 3 && s.chance(2):
		c = Change{Kind: ChangeRemove, Node: x.id}
		if x == n {
			s.counts["leader to be removed"]++
		}
	case contains(now.Conf.Voters, x.id) && len(now.Conf.Voters) > 2 && s.chance(3):
		c = Change{Kind: ChangeDemote, Node: x.id}
	case !contains(now.all(), x.id):
		c = Change{ChangeAdd, x.id, fmt.Sprint("sim-", x.id)}
	default:
		return
	}
	all := []Change{c}
	if c.Kind == ChangePromote && len(now.Conf.Voters) > 1 && s.chance(2) { // in one: joint consensus
		kind := ChangeDemote
		if len(now.Conf.Voters) > 3 && s.chance(2) {
			kind = ChangeRemove
		}
		all = append(all, Change{Kind: kind, Node: now.Conf.Voters[s.random.IntN(len(now.Conf.Voters))]})
	}
	s.note("%v: changes %+v", n, all)
	n.core.change(all, func(err error) {
		s.note("%v: changed %+v: %v", n, all, err)
		if err == nil {
			s.counts["change"]++
			for _, c := range all {
				if c.Kind == ChangeRemove {
					s.nodes[c.Node-1].gone = true
				}
			}
		}
	})
}

func contains(all []uint64, id uint64) bool {
	for _, x := range all {
		if x == id {
			return true
		}
	}
	return false
}

// simulate runs one seed.
func simulate(p *profile, seed uint64) *sim {
	nodes := []int{3, 3, 3, 5, 1, 2}[seed%6]
	if p.name != "all" {
		nodes = []int{3, 5}[seed%2]
	}
	defer restoreRandom()()
	s := newSim(seed, nodes, int(seed%3))
	s.chaos(p, 2500)
	s.heal()
	return s
}

// TestSimulation lets clusters run with all kinds of faults, and checks what a cluster promises.
//
//	-sim.runs 10000 -sim.from 1           many seeds
//	-sim.seed 7 -sim.profile votes -v     the transcript of one
func TestSimulation(t *testing.T) {
	for i := range profiles {
		p := &profiles[i]
		if *simProfile != "" && *simProfile != p.name {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			if *simSeed != 0 {
				s := simulate(p, *simSeed)
				t.Logf("%s\n%v", s.transcript(len(s.notes)), s.counts)
				if s.failed != "" {
					t.Fatal(s.failed)
				}
				return
			}
			runs := p.seeds
			if testing.Short() { // one goroutine: the race detector finds nothing in it
				runs /= 5
			}
			if *simRuns > 0 {
				runs = *simRuns
			}
			counts, most := map[string]int{}, map[string]int{}
			for seed := *simFrom; seed < *simFrom+uint64(runs); seed++ {
				s := simulate(p, seed)
				for k, v := range s.counts {
					counts[k] += v
				}
				for k, v := range s.most {
					most[k] = max(most[k], v)
				}
				if s.failed != "" {
					t.Fatalf("VIOLATED %s\nseed %d; repeat with -run '^TestSimulation$' -sim.seed %d -sim.profile %s -v\n%s", s.failed, seed, seed, p.name, s.transcript(60))
				}
			}
			t.Log(counts, most)
			for _, what := range map[string][]string{
				"all":   {"proposed", "committed", "lost", "read", "crash", "partition", "flapping", "clock", "broken", "ended", "checkpoint", "restored", "change", "leader to be removed"},
				"disk":  {"broken", "ended"},
				"lies":  {"lied", "noticed"},
				"votes": {"committed"},
			}[p.name] {
				if counts[what] == 0 {
					t.Errorf("%q never happened", what)
				}
			}
		})
	}
}

// TestSimulationRepeats shows that a seed always gives the same run.
func TestSimulationRepeats(t *testing.T) {
	for i := range profiles {
		a, b := simulate(&profiles[i], 3), simulate(&profiles[i], 3)
		if a.transcript(len(a.notes)) != b.transcript(len(b.notes)) {
			t.Errorf("%s: two runs of the same seed differ", profiles[i].name)
		}
	}
}
