package election

import (
	"cmp"
	"testing"
	"time"
)

const (
	interval = time.Second
	timeout  = 2 * interval
)

// machineIn returns a machine in a state, with a reign and a peer that was last heard at
// time 0.
func machineIn(role Role, s State, epoch uint64) Machine {
	m := NewMachine(role, timeout, 0, epoch)
	m.State = s
	return m
}

func guidePeer(role Role, s State) Candidate {
	return Candidate{State: s, Role: role.Other(), Guide: true}
}

// TestGuideTable checks every cell of the guide's table, with a guide program as peer.
func TestGuideTable(t *testing.T) {
	t.Parallel()
	const (
		p, b, a, s   = StatePrimary, StateBackup, StateActive, StatePassive
		young, stale = timeout - 1, timeout // the peer heard shortly ago, or too long ago
	)
	for _, c := range []struct {
		role   Role
		from   State
		event  Event
		at     time.Duration
		to     State
		accept bool
	}{
		{RolePrimary, p, PeerPrimary, young, p, false},
		{RolePrimary, p, PeerBackup, young, a, false},
		{RolePrimary, p, PeerActive, young, s, false},
		{RolePrimary, p, PeerPassive, young, p, false},
		{RolePrimary, p, Vote, young, p, false},
		{RolePrimary, p, Vote, stale, a, true},

		{RoleBackup, b, PeerPrimary, young, b, false},
		{RoleBackup, b, PeerBackup, young, b, false},
		{RoleBackup, b, PeerActive, young, s, false},
		{RoleBackup, b, PeerPassive, young, b, false},
		{RoleBackup, b, Vote, young, b, false},
		{RoleBackup, b, Vote, stale, b, false},

		{RolePrimary, a, PeerPrimary, young, a, false},
		{RolePrimary, a, PeerBackup, young, a, false},
		{RolePrimary, a, PeerPassive, young, a, false},
		{RolePrimary, a, Vote, young, a, true},
		{RolePrimary, a, Vote, stale, a, true},
		{RoleBackup, a, PeerPrimary, young, a, false},
		{RoleBackup, a, PeerBackup, young, a, false},
		{RoleBackup, a, PeerPassive, young, a, false},
		{RoleBackup, a, Vote, young, a, true},
		{RoleBackup, a, Vote, stale, a, true},

		{RolePrimary, s, PeerPrimary, young, a, false},
		{RolePrimary, s, PeerBackup, young, a, false},
		{RolePrimary, s, PeerActive, young, s, false},
		{RolePrimary, s, Vote, young, s, false},
		{RolePrimary, s, Vote, stale, a, true},
		{RoleBackup, s, PeerPrimary, young, a, false},
		{RoleBackup, s, PeerBackup, young, a, false},
		{RoleBackup, s, PeerActive, young, s, false},
		{RoleBackup, s, Vote, young, s, false},
		{RoleBackup, s, Vote, stale, a, true},

		// Where a guide program ends, the primary continues or takes over.
		{RolePrimary, a, PeerActive, young, a, false},
		{RoleBackup, a, PeerActive, young, s, false},
		{RolePrimary, s, PeerPassive, young, a, false},
		{RoleBackup, s, PeerPassive, young, s, false},
	} {
		m := machineIn(c.role, c.from, 0)
		m.ran = c.at - 1 // it was not suspended
		if c.event == Vote {
			m = m.Step(c.at, Vote)
		} else {
			m = m.Hear(c.at, guidePeer(c.role, State(c.event)))
			if m.Silent(c.at+timeout-1) || !m.Silent(c.at+timeout) {
				t.Errorf("%v %v, event %d: the deadline is %v", c.role, c.from, c.event, m.deadline)
			}
		}
		if m.State != c.to || c.event == Vote && m.Accepts(c.at) != c.accept {
			t.Errorf("%v %v, event %d at %v: %v, accepted: %v", c.role, c.from, c.event, c.at, m.State, m.Accepts(c.at))
		}
	}
}

// TestReigns checks the extensions of the guide's table, with two nodes of this package.
func TestReigns(t *testing.T) {
	t.Parallel()
	const (
		b, a, s, y = StateBackup, StateActive, StatePassive, StateYielding
		p          = StatePrimary
	)
	for _, c := range []struct {
		what      string
		role      Role
		from      State
		own       uint64
		payload   string
		peer      State
		peerEpoch uint64
		peerLoad  string
		to        State
		epoch     uint64
	}{
		{"of two actives the older yields", RolePrimary, a, 5, "", a, 6, "", s, 6},
		{"of two actives the newer stays", RoleBackup, a, 6, "", a, 5, "", a, 6},
		{"of two equal reigns the primary's stays and gets a number of its own", RolePrimary, a, 5, "", a, 5, "", a, 6},
		{"of two equal reigns the backup's yields, and calls for another number", RoleBackup, a, 5, "", a, 5, "", s, 6},
		{"of two equal reigns the larger payload stays", RoleBackup, a, 5, "b", a, 5, "a", a, 6},
		{"and the smaller one yields, though it is the primary's", RolePrimary, a, 5, "a", a, 5, "b", s, 6},
		{"an active with a number that the peer has seen surpassed takes a newer one", RolePrimary, a, 5, "", s, 7, "", a, 8},
		{"of two passives the newer reign takes over", RoleBackup, s, 6, "", s, 5, "", a, 7},
		{"of two passives the older reign stays", RolePrimary, s, 5, "", s, 6, "", s, 5},
		{"of two passives of one reign the primary takes over", RolePrimary, s, 5, "", s, 5, "", a, 6},
		{"of two passives of one reign the backup stays", RoleBackup, s, 5, "", s, 5, "", s, 5},
		{"the payload decides before the role", RoleBackup, s, 5, "b", s, 5, "a", a, 6},
		{"and for both", RolePrimary, s, 5, "a", s, 5, "b", s, 5},
		{"the payload decides before the reign", RolePrimary, s, 6, "a", s, 5, "b", s, 6},
		{"and for both", RoleBackup, s, 5, "b", s, 6, "a", a, 7},
		{"both start, and the backup's reign is newer", RolePrimary, p, 5, "", b, 6, "", p, 5},
		{"both start, and the own reign is newer", RoleBackup, b, 6, "", p, 5, "", a, 7},
		{"a restarted peer has nothing, whatever reign it remembers", RoleBackup, s, 5, "", p, 6, "", a, 7},
		{"who has restarted waits for the passive peer", RolePrimary, p, 6, "", s, 5, "", p, 6},
		{"a passive takes over from a peer that is yielding", RoleBackup, s, 5, "", y, 5, "z", a, 6},
		{"who yields waits for a passive peer", RolePrimary, y, 5, "z", s, 5, "", y, 5},
		{"who yields goes on if the peer restarts", RolePrimary, y, 5, "", b, 0, "", a, 6},
		{"a waiting backup does not take over from a peer that is yielding", RoleBackup, b, 0, "", y, 5, "", b, 0},
		{"of two that yield the primary goes on", RolePrimary, y, 5, "", y, 5, "", a, 6},
		{"a passive takes over its active's reign", RoleBackup, s, 5, "", a, 9, "", s, 9},
		{"a reign is never forgotten", RoleBackup, s, 9, "", a, 5, "", s, 9},
		{"a restarted peer may have more than the passive node", RoleBackup, s, 5, "a", p, 5, "b", s, 5},
		{"and goes on then", RolePrimary, p, 5, "b", s, 5, "a", a, 6},
		{"a restarted peer that has less waits", RolePrimary, p, 5, "a", s, 5, "b", p, 5},
		{"an active that has nothing yields to one that has something", RolePrimary, a, 9, "", a, 5, "b", s, 9},
		{"which takes a newer number", RoleBackup, a, 5, "b", a, 9, "", a, 10},
		{"and to a passive that has something", RolePrimary, a, 9, "", s, 5, "b", p, 9},
		{"which waits for that", RoleBackup, s, 5, "b", a, 9, "", s, 5},
		{"and becomes active then", RoleBackup, s, 5, "b", p, 9, "", a, 10},
		{"and to a peer that has just started with something", RolePrimary, a, 9, "", b, 0, "b", p, 9},
		{"which waits for that, too", RoleBackup, b, 0, "b", a, 9, "", b, 0},
		{"and becomes active then, too", RoleBackup, b, 0, "b", p, 9, "", a, 10},
		{"an active that has less, of an older reign, steps down for who has served a newer one", RolePrimary, a, 5, "a", b, 9, "b", p, 5},
		{"which waits for it, whichever reign is newer", RoleBackup, b, 9, "b", a, 5, "a", b, 9},
		{"an active that has less, of the same reign, steps down for a passive that does not copy from it", RoleBackup, a, 5, "a", s, 5, "b", b, 5},
		{"of two actives the one with less yields, though its reign is newer", RoleBackup, a, 7, "a", a, 5, "b", s, 7},
		{"and the other one takes a newer number", RolePrimary, a, 5, "b", a, 7, "a", a, 8},
		{"an active that has more goes on, though its reign is older", RoleBackup, b, 9, "a", a, 5, "b", s, 9},
		{"there is an end to numbers", RolePrimary, s, MaxEpoch, "", s, MaxEpoch, "", a, MaxEpoch},
	} {
		m := machineIn(c.role, c.from, c.own)
		m.Compare = func(own, peer []byte) int { return cmp.Compare(string(own), string(peer)) }
		m.Payload = []byte(c.payload)
		m = m.Hear(0, Candidate{State: c.peer, Role: c.role.Other(), Epoch: c.peerEpoch, Payload: []byte(c.peerLoad)})
		if m.State != c.to || m.Epoch != c.epoch {
			t.Errorf("%s: %v of reign %d", c.what, m.State, m.Epoch)
		}
	}
}

// TestCopied: an active node does not step down for one that copies its data, though that has
// more data than its own payload says, and one that copies them does not wait for that.
func TestCopied(t *testing.T) {
	t.Parallel()
	for _, load := range []string{"", "a"} {
		for _, copied := range []bool{false, true} {
			hears := func(role Role, from State, own string, peer State, peerLoad string) State {
				m := machineIn(role, from, 9)
				m.Compare = func(own, peer []byte) int { return cmp.Compare(string(own), string(peer)) }
				m.Copied = func(active, other []byte) bool { return copied && string(active) == load && string(other) == "b" }
				m.Payload = []byte(own)
				return m.Hear(0, Candidate{State: peer, Role: role.Other(), Epoch: 5, Payload: []byte(peerLoad)}).State
			}
			active := hears(RolePrimary, StateActive, load, StatePassive, "b")
			waiting := hears(RoleBackup, StateBackup, "b", StateActive, load)
			if want := map[bool][2]State{false: {StatePrimary, StateBackup}, true: {StateActive, StatePassive}}[copied]; want != [2]State{active, waiting} {
				t.Errorf("payload %q, copied %v: %v, %v", load, copied, active, waiting)
			}
		}
	}
}

// TestSuspended: a node that did not run for the time-out does not consider its peer
// silent, and if it was active, it accepts no vote until it could have heard of a newer
// reign.
func TestSuspended(t *testing.T) {
	t.Parallel()
	m := machineIn(RoleBackup, StatePassive, 1)
	m = m.Step(timeout, Vote)
	if m.State != StatePassive {
		t.Errorf("took over after a pause: %v", m.State)
	}
	for now := timeout; now <= 2*timeout; now += interval {
		m = m.Step(now, Tick)
	}
	if m = m.Step(2*timeout, Vote); m.State != StateActive {
		t.Errorf("did not take over from a peer that is Silent: %v", m.State)
	}

	m = machineIn(RolePrimary, StateActive, 1)
	m = m.Step(timeout, Vote)
	if m.State != StateActive || m.Accepts(timeout) || m.Accepts(2*timeout-1) || !m.Accepts(2*timeout) {
		t.Errorf("after a pause, an active node accepts votes too early")
	}
}

// TestVoteless: without votes silence is enough, except for a backup that has never had a
// peer.
func TestVoteless(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role     Role
		from, to State
	}{
		{RolePrimary, StatePrimary, StateActive},
		{RoleBackup, StateBackup, StateBackup},
		{RoleBackup, StatePassive, StateActive},
		{RolePrimary, StateYielding, StateActive},
	} {
		for _, voteless := range []bool{false, true} {
			m := machineIn(c.role, c.from, 1)
			m.Voteless = voteless
			m = m.Step(interval, Tick)
			if m.State != c.from {
				t.Errorf("%v before the time-out: %v", c.from, m.State)
			}
			want := c.from
			if voteless {
				want = c.to
			}
			if m = m.Step(timeout, Tick); m.State != want {
				t.Errorf("%v, voteless %v: %v, not %v", c.from, voteless, m.State, want)
			}
		}
	}
}

// TestYield: only an active node hands over, and only to a passive one that is alive.
func TestYield(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, peer State
		at         time.Duration
		to         State
	}{
		{StateActive, StatePassive, interval, StateYielding},
		{StateActive, StatePassive, timeout, StateActive},
		{StateActive, StateBackup, interval, StateActive},
		{StateActive, 0, interval, StateActive},
		{StatePassive, StateActive, interval, StatePassive},
		{StatePrimary, StatePassive, interval, StatePrimary},
	} {
		m := machineIn(RolePrimary, c.from, 1)
		if c.peer != 0 {
			m = m.Hear(0, guidePeer(RolePrimary, c.peer))
		}
		m = m.Step(interval, Tick)
		if m = m.Step(c.at, Yield); m.State != c.to {
			t.Errorf("%v, peer %v, at %v: %v", c.from, c.peer, c.at, m.State)
		}
	}
}

// TestSameRole: two nodes with the same role do not become active when they hear each
// other start.
func TestSameRole(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{RolePrimary, RoleBackup} {
		m := NewMachine(role, timeout, 0, 0)
		m = m.Hear(interval, Candidate{State: role.Waiting(), Role: role})
		if m = m.Step(timeout, Vote); m.State != role.Waiting() {
			t.Errorf("two of role %v: %v", role, m.State)
		}
	}
}
