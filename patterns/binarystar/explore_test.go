package binarystar

import (
	"fmt"
	"strings"
	"testing"
)

// These tests explore all sequences of events, up to a depth, for two nodes that are
// connected by links that delay and lose messages. They do not explore a world twice.
// For every world they check that, when all trouble ends, one node becomes active and
// the other one passive, and that this does not change.

// room is the number of messages that a link holds.
const room = 2

// node is one of the two nodes. It is of this package, or behaves like a guide program.
type node struct {
	machine
	up    bool
	guide bool
	fatal bool // a guide program has ended by itself
}

// world is two nodes, and the messages in transit to each. Its time is always 0: the
// nodes' times are moved instead, so that worlds can be compared.
type world struct {
	nodes [2]node
	links [2][]candidate // to this node
}

// key identifies a world. Only the differences of epochs matter.
type key [40]uint8

func (w *world) key() (k key) {
	least := uint64(MaxEpoch)
	for i := range w.nodes {
		least = min(least, w.nodes[i].epoch, w.nodes[i].peer.epoch)
		for _, c := range w.links[i] {
			least = min(least, c.epoch)
		}
	}
	at := 0
	put := func(v uint8) { k[at] = v; at++ }
	for i := range w.nodes {
		n := &w.nodes[i]
		flags := uint8(0)
		if n.up {
			flags = 1
		}
		if n.fatal {
			flags |= 2
		}
		put(flags)
		put(uint8(n.state))
		put(uint8(n.epoch - least))
		put(uint8(n.newest - least))
		put(uint8(n.peer.state))
		put(uint8(n.peer.epoch - least))
		put(uint8(max(n.deadline, 0) / interval))
		put(uint8(min(-n.ran, timeout) / interval))
		put(uint8(max(n.doubt, 0) / interval))
		put(load(n.payload))
		put(uint8(len(w.links[i])))
		for _, c := range w.links[i] {
			put(uint8(c.state))
			put(uint8(c.epoch - least))
			put(load(c.payload))
		}
	}
	return k
}

// load is a payload as a number.
func load(payload []byte) uint8 {
	if len(payload) == 0 {
		return 0
	}
	return payload[0]
}

// send sends this node's state to the other one. A full link loses the newest message.
func (w *world) send(i int) {
	n, to := &w.nodes[i], 1-i
	if len(w.links[to]) == room {
		return
	}
	c := candidate{state: n.announced(w.nodes[to].guide), role: n.role, guide: n.guide || w.nodes[to].guide}
	if !c.guide {
		c.epoch, c.payload = n.epoch, n.payload
	}
	w.links[to] = append(w.links[to][:len(w.links[to]):len(w.links[to])], c)
}

// pass lets an interval pass, in which the nodes of the mask run.
func (w *world) pass(mask int) {
	for i := range w.nodes {
		n := &w.nodes[i]
		n.deadline -= interval
		n.ran -= interval
		n.doubt -= interval
	}
	for i := range w.nodes {
		if mask&(1<<i) != 0 && w.nodes[i].up {
			w.step(i, tick)
			w.send(i)
		}
	}
}

func (w *world) step(i int, e event) {
	n := &w.nodes[i]
	if n.guide {
		n.guideStep(e)
		return
	}
	before := n.machine
	n.machine = n.machine.step(0, e)
	w.changed(i, before)
}

// changed sends the new state at once, as a node does.
func (w *world) changed(i int, before machine) {
	if n := &w.nodes[i]; n.state != before.state || n.epoch != before.epoch {
		w.send(i)
	}
}

// deliver delivers the first message in transit to a node.
func (w *world) deliver(i int) {
	n, c := &w.nodes[i], w.links[i][0]
	w.links[i] = w.links[i][1:]
	switch {
	case !n.up:
	case n.guide:
		n.deadline = timeout
		n.guideStep(event(c.state))
	default:
		before := n.machine
		n.machine = n.hear(0, c)
		w.changed(i, before)
	}
}

func (w *world) restart(i int, epoch uint64) {
	n := &w.nodes[i]
	fresh := newMachine(n.role, timeout, 0, epoch)
	fresh.table, fresh.voteless, fresh.compare, fresh.lost, fresh.copied = n.table, n.voteless, n.compare, n.lost, n.copied
	if epoch > 0 {
		fresh.payload = n.payload
	}
	n.machine, n.up, n.fatal = fresh, true, false
}

// guideStep is a step of a guide program.
func (n *node) guideStep(e event) {
	silent := n.deadline <= 0
	switch s := n.state; {
	case s == StatePrimary && (e == peerBackup || e == vote && silent),
		s == StatePassive && (e == peerPrimary || e == peerBackup || e == vote && silent):
		n.state = StateActive
	case (s == StatePrimary || s == StateBackup) && e == peerActive:
		n.state = StatePassive
	case s == StateActive && e == peerActive, s == StatePassive && e == peerPassive:
		n.up, n.fatal = false, true
	}
}

// heal ends all trouble and returns a description of a fault that remains, or "". Nodes
// that were down are restarted with or without their epoch.
func (w world) heal(forget bool) string {
	for i := range w.nodes {
		if n := &w.nodes[i]; !n.up {
			epoch := n.epoch
			if forget {
				epoch = 0
			}
			w.restart(i, epoch)
		}
	}
	const rounds, settled = 10, 7
	var last [2]State
	for r := range rounds {
		w.pass(3)
		for len(w.links[0])+len(w.links[1]) > 0 {
			for i := range w.links {
				if len(w.links[i]) > 0 {
					w.deliver(i)
				}
			}
		}
		for i := range w.nodes {
			if n := &w.nodes[i]; n.fatal {
				w.restart(i, 0) // by its supervisor
			}
		}
		states := [2]State{w.nodes[0].state, w.nodes[1].state}
		switch {
		case r < settled:
		case states != [2]State{StateActive, StatePassive} && states != [2]State{StatePassive, StateActive}:
			return fmt.Sprintf("%v and %v", states[0], states[1])
		case r > settled && states != last:
			return "they take turns"
		case w.nodes[0].epoch != w.nodes[1].epoch && !w.nodes[0].guide && !w.nodes[1].guide:
			return "they are of different reigns"
		case w.lost():
			return "the one that has nothing serves, and the other one has something"
		}
		last = states
	}
	return ""
}

// lost reports whether an active node has no data, and its passive peer has some.
func (w *world) lost() bool {
	for i := range w.nodes {
		n, p := &w.nodes[i], &w.nodes[1-i]
		if n.compare != nil && n.state == StateActive && len(n.payload) == 0 && len(p.payload) > 0 && !n.guide && !p.guide {
			return true
		}
	}
	return false
}

// action is an event in a world, if it is possible now.
type action struct {
	name string
	do   func(w *world) bool
}

var actions = func() (all []action) {
	add := func(name string, do func(w *world) bool) { all = append(all, action{name, do}) }
	add("interval", func(w *world) bool { w.pass(3); return true })
	for i := range 2 {
		who := string(rune('A' + i))
		add("interval without "+who, func(w *world) bool {
			if !w.nodes[i].up {
				return false
			}
			w.pass(3 &^ (1 << i))
			return true
		})
		add("deliver to "+who, func(w *world) bool {
			if len(w.links[i]) == 0 {
				return false
			}
			w.deliver(i)
			return true
		})
		add("lose to "+who, func(w *world) bool {
			if len(w.links[i]) == 0 {
				return false
			}
			w.links[i] = w.links[i][1:]
			return true
		})
		add("vote at "+who, func(w *world) bool {
			if !w.nodes[i].up {
				return false
			}
			w.step(i, vote)
			return true
		})
		add("handover of "+who, func(w *world) bool {
			if !w.nodes[i].up || w.nodes[i].guide {
				return false
			}
			w.step(i, yield)
			return true
		})
		add("update at "+who, func(w *world) bool {
			n := &w.nodes[i]
			if !n.up || n.state != StateActive || n.compare == nil || load(n.payload) == uint8(n.epoch) {
				return false
			}
			n.payload = []byte{uint8(n.epoch)}
			return true
		})
		add("kill "+who, func(w *world) bool {
			if !w.nodes[i].up {
				return false
			}
			w.nodes[i].up = false
			return true
		})
		add("restart "+who, func(w *world) bool {
			if w.nodes[i].up {
				return false
			}
			w.restart(i, w.nodes[i].epoch)
			return true
		})
		add("restart without epoch "+who, func(w *world) bool {
			if w.nodes[i].up || w.nodes[i].epoch == 0 {
				return false
			}
			w.restart(i, 0)
			return true
		})
	}
	return all
}()

// fault is a fault that an exploration has found, and the actions that lead to it.
type fault struct {
	what string
	path []string
}

func (f *fault) String() string { return f.what + " after: " + strings.Join(f.path, ", ") }

// explore visits every world up to a depth. It returns their number and the first fault.
func explore(first world, depth int) (worlds int, _ *fault) {
	type place struct {
		world
		from, by int
	}
	places := []place{{first, -1, 0}}
	seen := map[key]bool{first.key(): true}
	path := func(at int) (names []string) {
		for ; places[at].from >= 0; at = places[at].from {
			names = append([]string{actions[places[at].by].name}, names...)
		}
		return names
	}
	begin := 0
	for range depth {
		end := len(places)
		for at := begin; at < end; at++ {
			for by, a := range actions {
				w := places[at].world
				if !a.do(&w) {
					continue
				}
				k := w.key()
				if seen[k] {
					continue
				}
				seen[k] = true
				places = append(places, place{w, at, by})
				for i := range w.nodes {
					if n := &w.nodes[i]; n.fatal && w.nodes[1-i].guide == n.guide {
						return len(places), &fault{"a fatal end", path(len(places) - 1)}
					}
				}
				for _, forget := range []bool{false, true} {
					if what := w.heal(forget); what != "" {
						return len(places), &fault{what, path(len(places) - 1)}
					}
				}
			}
		}
		begin = end
	}
	return len(places), nil
}

// pair is two nodes that start at the same time.
func pair(change func(primary, backup *node)) world {
	var w world
	for i, role := range []Role{RolePrimary, RoleBackup} {
		w.nodes[i] = node{machine: newMachine(role, timeout, 0, 0), up: true}
	}
	if change != nil {
		change(&w.nodes[0], &w.nodes[1])
	}
	return w
}

// begin sets the states and reigns of a pair.
func begin(primary, backup State, epochs ...uint64) func(w *world) {
	return func(w *world) {
		for i, s := range []State{primary, backup} {
			n := &w.nodes[i]
			n.state, n.epoch, n.newest = s, epochs[i], epochs[i]
		}
	}
}

// beginnings are the worlds from which to explore. Some are too far from a start to be
// reached in a few steps.
var beginnings = []struct {
	name  string
	begin func(w *world)
	depth int
}{
	{"start", func(*world) {}, 6},
	{"primary serves", begin(StateActive, StatePassive, 1, 1), 5},
	{"backup serves", begin(StatePassive, StateActive, 1, 1), 4},
	{"both serve", begin(StateActive, StateActive, 2, 1), 4},
	{"both serve in equal reigns", begin(StateActive, StateActive, 1, 1), 4},
	{"both follow", begin(StatePassive, StatePassive, 1, 2), 4},
}

// TestExplore: after any events, one of two nodes becomes active and one passive once they
// hear each other.
func TestExplore(t *testing.T) {
	t.Parallel()
	for _, voteless := range []bool{false, true} {
		for _, b := range beginnings {
			w := pair(func(p, b *node) { p.voteless, b.voteless = voteless, voteless })
			b.begin(&w)
			worlds, f := explore(w, b.depth)
			if f != nil {
				t.Errorf("%s, voteless %v: %v", b.name, voteless, f)
			}
			t.Logf("%s, voteless %v: %d worlds", b.name, voteless, worlds)
		}
	}
}

// TestExplorePayloads: the same if the nodes have payloads, which grow with the first
// update of a reign, and which a node loses if it restarts without its epoch. A node
// without data does not serve if the other one has some.
func TestExplorePayloads(t *testing.T) {
	t.Parallel()
	compare := func(own, peer []byte) int { return int(load(own)) - int(load(peer)) }
	older := func(active, other []byte) bool { return load(active) < load(other) }
	for name, lost := range map[string]func(active, other []byte) bool{"none": hasLost, "older": older} {
		for _, payloads := range [][2]string{{"\x01", ""}, {"", "\x01"}, {"\x01", "\x02"}, {"\x02", "\x01"}} {
			for _, b := range beginnings {
				w := pair(func(p, b *node) {
					p.compare, b.compare = compare, compare
					p.lost, b.lost = lost, lost
					p.payload, b.payload = []byte(payloads[0]), []byte(payloads[1])
				})
				b.begin(&w)
				worlds, f := explore(w, min(b.depth, 4))
				if f != nil {
					t.Errorf("%s, payloads %q, lost is %s: %v", b.name, payloads, name, f)
				}
				t.Logf("%s, payloads %q, lost is %s: %d worlds", b.name, payloads, name, worlds)
			}
		}
	}
}

// TestExploreGuide: the same for a node and a guide program, which is restarted whenever
// it ends.
func TestExploreGuide(t *testing.T) {
	t.Parallel()
	for guide := range 2 {
		for _, b := range beginnings {
			w := pair(nil)
			w.nodes[guide].guide = true
			b.begin(&w)
			w.nodes[guide].epoch, w.nodes[guide].newest = 0, 0
			worlds, f := explore(w, b.depth)
			if f != nil {
				t.Errorf("%s, guide is %v: %v", b.name, w.nodes[guide].role, f)
			}
			t.Logf("%s, guide is %v: %d worlds", b.name, w.nodes[guide].role, worlds)
		}
	}
}

// TestExploreFindsTheGuidesFlaw: the exploration finds the known flaw of two guide
// programs, that they end each other.
func TestExploreFindsTheGuidesFlaw(t *testing.T) {
	t.Parallel()
	_, f := explore(pair(func(p, b *node) { p.guide, b.guide = true, true }), 9)
	if f == nil || f.what != "a fatal end" {
		t.Errorf("found %v", f)
	}
	t.Log(f)
}

// TestExploreFindsMutations: the exploration finds a wrong cell of the table.
func TestExploreFindsMutations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state State
		event event
		to    rule
	}{
		{StatePrimary, peerBackup, stay},
		{StatePrimary, peerActive, stay},
		{StatePrimary, peerActive, contest},
		{StateBackup, peerActive, stay},
		{StateActive, peerActive, stay},
		{StateActive, peerActive, reign},
		{StateActive, peerPassive, stay},
		{StateActive, peerPassive, follow},
		{StatePassive, peerPrimary, stay},
		{StatePassive, peerBackup, stay},
		{StatePassive, peerPassive, stay},
		{StatePassive, peerYielding, stay},
		{StateYielding, peerActive, stay},
	} {
		changed := table
		changed[c.state][c.event] = c.to
		found := false
		for _, b := range beginnings {
			w := pair(func(p, b *node) { p.table, b.table = &changed, &changed })
			b.begin(&w)
			if _, f := explore(w, 4); f != nil {
				found = true
				break
			}
		}
		if !found {
			t.Errorf("no fault with rule %d instead of %d for event %d in state %v", c.to, table[c.state][c.event], c.event, c.state)
		}
	}
}
