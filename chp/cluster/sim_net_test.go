package cluster

import (
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
)

// simNet is the network of a simulation.
type simNet struct {
	sim   *sim
	first int // nodes that begin the cluster
	due   map[int][]*Message
	cut   map[[2]uint64]bool // from, to: nothing gets through
	other map[[2]uint64]bool // of a partition that flaps: takes turns with cut
	flaps int                // steps of a turn; 0 means it does not flap
	loss  int                // one of so many messages is lost; 0 means none
	twice int                // one of so many messages arrives again
	delay int                // maximum, in steps
}

func (n *simNet) init() {
	n.due, n.cut = map[int][]*Message{}, map[[2]uint64]bool{}
	for _, x := range n.sim.nodes {
		if x.member {
			n.first++
		}
	}
	n.delay = 2
}

func (n *simNet) heal() {
	n.cut = map[[2]uint64]bool{}
	n.loss, n.twice, n.delay, n.flaps = 0, 0, 2, 0
}

// flap exchanges the partitions that take turns.
func (n *simNet) flap() {
	if n.flaps > 0 && n.sim.now%n.flaps == 0 {
		n.cut, n.other = n.other, n.cut
	}
}

func (n *simNet) send(m *Message) {
	s := n.sim
	switch {
	case !s.trace:
	case m.Kind == KindRaft:
		s.note("%s", raft.DescribeMessage(m.Raft, func([]byte) string { return "" }))
	default:
		s.note("%d->%d kind %d, stream %d, part %d, last %v, failed %v", m.From, m.To, m.Kind, m.Stream, m.Part, m.Last, m.Failed)
	}
	if n.cut[[2]uint64{m.From, m.To}] || n.loss > 0 && s.chance(n.loss) {
		return
	}
	c := *m
	c.Raft.Entries = slices.Clone(m.Raft.Entries)
	for range 2 {
		at := s.now + 1 + s.random.IntN(n.delay)
		copied := c
		n.due[at] = append(n.due[at], &copied)
		if n.twice == 0 || !s.chance(n.twice) {
			return
		}
	}
}

// deliver delivers what is due.
func (n *simNet) deliver() {
	all := n.due[n.sim.now]
	delete(n.due, n.sim.now)
	for _, m := range all {
		to := n.sim.nodes[m.To-1]
		if to.stopped { // its system keeps what arrives
			at := n.sim.now + 5
			n.due[at] = append(n.due[at], m)
			continue
		}
		if to.up && !n.cut[[2]uint64{m.From, m.To}] {
			to.core.receive(m)
		}
	}
}

// partition cuts some connections.
func (n *simNet) partition() {
	s := n.sim
	n.other, n.flaps = n.cut, 0 // what was cut before, or nothing
	n.cut = map[[2]uint64]bool{}
	both := func(a, b uint64) { n.cut[[2]uint64{a, b}], n.cut[[2]uint64{b, a}] = true, true }
	one := s.nodes[s.random.IntN(len(s.nodes))].id
	switch s.random.IntN(6) {
	case 0: // two sides
		side := map[uint64]bool{}
		for _, x := range s.nodes {
			side[x.id] = s.chance(2)
		}
		for _, a := range s.nodes {
			for _, b := range s.nodes {
				if side[a.id] != side[b.id] {
					both(a.id, b.id)
				}
			}
		}
	case 1: // one alone
		for _, b := range s.nodes {
			both(one, b.id)
		}
	case 2: // one is not heard
		for _, b := range s.nodes {
			n.cut[[2]uint64{one, b.id}] = true
		}
	case 3: // one does not hear
		for _, b := range s.nodes {
			n.cut[[2]uint64{b.id, one}] = true
		}
	case 4: // a single connection, one way
		other := s.nodes[s.random.IntN(len(s.nodes))].id
		n.cut[[2]uint64{one, other}] = true
	case 5: // all talk to one only
		for _, a := range s.nodes {
			for _, b := range s.nodes {
				if a.id != one && b.id != one {
					both(a.id, b.id)
				}
			}
		}
	}
	s.counts["partition"]++
	s.note("partition: cut %v", slices.SortedFunc(maps.Keys(n.cut), func(a, b [2]uint64) int {
		return int(a[0]*100+a[1]) - int(b[0]*100+b[1])
	}))
}
