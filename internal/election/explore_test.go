package election

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
	Machine
	up    bool
	Guide bool
	fatal bool // a guide program has ended by itself
}

// world is two nodes, and the messages in transit to each. Its time is always 0: the
// nodes' times are moved instead, so that worlds can be compared.
type world struct {
	nodes [2]node
	links [2][]Candidate // to this node
}

// key identifies a world. Only the differences of epochs matter.
type key [40]uint8

func (w *world) key() (k key) {
	least := uint64(MaxEpoch)
	for i := range w.nodes {
		least = min(least, w.nodes[i].Epoch, w.nodes[i].Peer.Epoch)
		for _, c := range w.links[i] {
			least = min(least, c.Epoch)
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
		put(uint8(n.State))
		put(uint8(n.Epoch - least))
		put(uint8(n.newest - least))
		put(uint8(n.Peer.State))
		put(uint8(n.Peer.Epoch - least))
		put(uint8(max(n.deadline, 0) / interval))
		put(uint8(min(-n.ran, timeout) / interval))
		put(uint8(max(n.doubt, 0) / interval))
		put(load(n.Payload))
		put(uint8(len(w.links[i])))
		for _, c := range w.links[i] {
			put(uint8(c.State))
			put(uint8(c.Epoch - least))
			put(load(c.Payload))
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
	c := Candidate{State: n.Announced(w.nodes[to].Guide), Role: n.Role, Guide: n.Guide || w.nodes[to].Guide}
	if !c.Guide {
		c.Epoch, c.Payload = n.Epoch, n.Payload
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
			w.step(i, Tick)
			w.send(i)
		}
	}
}

func (w *world) step(i int, e Event) {
	n := &w.nodes[i]
	if n.Guide {
		n.guideStep(e)
		return
	}
	before := n.Machine
	n.Machine = n.Machine.Step(0, e)
	w.changed(i, before)
}

// changed sends the new state at once, as a node does.
func (w *world) changed(i int, before Machine) {
	if n := &w.nodes[i]; n.State != before.State || n.Epoch != before.Epoch {
		w.send(i)
	}
}

// deliver delivers the first message in transit to a node.
func (w *world) deliver(i int) {
	n, c := &w.nodes[i], w.links[i][0]
	w.links[i] = w.links[i][1:]
	switch {
	case !n.up:
	case n.Guide:
		n.deadline = timeout
		n.guideStep(Event(c.State))
	default:
		before := n.Machine
		n.Machine = n.Hear(0, c)
		w.changed(i, before)
	}
}

func (w *world) restart(i int, epoch uint64) {
	n := &w.nodes[i]
	fresh := NewMachine(n.Role, timeout, 0, epoch)
	fresh.table, fresh.Voteless, fresh.Compare, fresh.Copied = n.table, n.Voteless, n.Compare, n.Copied
	if epoch > 0 {
		fresh.Payload = n.Payload
	}
	n.Machine, n.up, n.fatal = fresh, true, false
}

// guideStep is a step of a guide program.
func (n *node) guideStep(e Event) {
	silent := n.deadline <= 0
	switch s := n.State; {
	case s == StatePrimary && (e == PeerBackup || e == Vote && silent),
		s == StatePassive && (e == PeerPrimary || e == PeerBackup || e == Vote && silent):
		n.State = StateActive
	case (s == StatePrimary || s == StateBackup) && e == PeerActive:
		n.State = StatePassive
	case s == StateActive && e == PeerActive, s == StatePassive && e == PeerPassive:
		n.up, n.fatal = false, true
	}
}

// heal ends all trouble and returns a description of a fault that remains, or "". Nodes
// that were down are restarted with or without their epoch.
func (w world) heal(forget bool) string {
	for i := range w.nodes {
		if n := &w.nodes[i]; !n.up {
			epoch := n.Epoch
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
		states := [2]State{w.nodes[0].State, w.nodes[1].State}
		switch {
		case r < settled:
		case states != [2]State{StateActive, StatePassive} && states != [2]State{StatePassive, StateActive}:
			return fmt.Sprintf("%v and %v", states[0], states[1])
		case r > settled && states != last:
			return "they take turns"
		case w.nodes[0].Epoch != w.nodes[1].Epoch && !w.nodes[0].Guide && !w.nodes[1].Guide:
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
		if n.Compare != nil && n.State == StateActive && len(n.Payload) == 0 && len(p.Payload) > 0 && !n.Guide && !p.Guide {
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
			w.step(i, Vote)
			return true
		})
		add("handover of "+who, func(w *world) bool {
			if !w.nodes[i].up || w.nodes[i].Guide {
				return false
			}
			w.step(i, Yield)
			return true
		})
		add("promote "+who, func(w *world) bool {
			if !w.nodes[i].up || w.nodes[i].Guide {
				return false
			}
			w.step(i, Promote)
			return true
		})
		add("update at "+who, func(w *world) bool {
			n := &w.nodes[i]
			if !n.up || n.State != StateActive || n.Compare == nil || load(n.Payload) == uint8(n.Epoch) {
				return false
			}
			n.Payload = []byte{uint8(n.Epoch)}
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
			w.restart(i, w.nodes[i].Epoch)
			return true
		})
		add("restart without epoch "+who, func(w *world) bool {
			if w.nodes[i].up || w.nodes[i].Epoch == 0 {
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
					if n := &w.nodes[i]; n.fatal && w.nodes[1-i].Guide == n.Guide {
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
		w.nodes[i] = node{Machine: NewMachine(role, timeout, 0, 0), up: true}
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
			n.State, n.Epoch, n.newest = s, epochs[i], epochs[i]
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
	{"at the end of numbers", begin(StateActive, StateActive, MaxEpoch, MaxEpoch), 4},
	{"one is at the end of numbers", begin(StateActive, StatePassive, 1, MaxEpoch), 4},
}

// TestExplore: after any events, one of two nodes becomes active and one passive once they
// hear each other.
func TestExplore(t *testing.T) {
	t.Parallel()
	for _, voteless := range []bool{false, true} {
		for _, b := range beginnings {
			w := pair(func(p, b *node) { p.Voteless, b.Voteless = voteless, voteless })
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
	for _, payloads := range [][2]string{{"\x01", ""}, {"", "\x01"}, {"\x01", "\x02"}, {"\x02", "\x01"}} {
		for _, b := range beginnings {
			w := pair(func(p, b *node) {
				p.Compare, b.Compare = compare, compare
				p.Payload, b.Payload = []byte(payloads[0]), []byte(payloads[1])
			})
			b.begin(&w)
			worlds, f := explore(w, min(b.depth, 4))
			if f != nil {
				t.Errorf("%s, payloads %q: %v", b.name, payloads, f)
			}
			t.Logf("%s, payloads %q: %d worlds", b.name, payloads, worlds)
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
			w.nodes[guide].Guide = true
			b.begin(&w)
			w.nodes[guide].Epoch, w.nodes[guide].newest = 0, 0
			worlds, f := explore(w, b.depth)
			if f != nil {
				t.Errorf("%s, guide is %v: %v", b.name, w.nodes[guide].Role, f)
			}
			t.Logf("%s, guide is %v: %d worlds", b.name, w.nodes[guide].Role, worlds)
		}
	}
}

// TestExploreFindsTheGuidesFlaw: the exploration finds the known flaw of two guide
// programs, that they end each other.
func TestExploreFindsTheGuidesFlaw(t *testing.T) {
	t.Parallel()
	_, f := explore(pair(func(p, b *node) { p.Guide, b.Guide = true, true }), 9)
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
		Event Event
		to    rule
	}{
		{StatePrimary, PeerBackup, stay},
		{StatePrimary, PeerActive, stay},
		{StatePrimary, PeerActive, bothWaiting},
		{StateBackup, PeerActive, stay},
		{StateActive, PeerActive, stay},
		{StateActive, PeerActive, reign},
		{StateActive, PeerPassive, stay},
		{StateActive, PeerPassive, follow},
		{StatePassive, PeerPrimary, stay},
		{StatePassive, PeerBackup, stay},
		{StatePassive, PeerPassive, stay},
		{StatePassive, PeerYielding, stay},
		{StateYielding, PeerActive, stay},
	} {
		changed := table
		changed[c.state][c.Event] = c.to
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
			t.Errorf("no fault with rule %d instead of %d for event %d in state %v", c.to, table[c.state][c.Event], c.Event, c.state)
		}
	}
}
